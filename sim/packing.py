"""Packing of devices: a drafter beside each target, or one shared drafter on a separate device."""

import msgspec

from fleet.scenario.memory import DeviceMemory
from sim.analytic import throughput


class Packing(msgspec.Struct, frozen=True):
    """How many targets fit, and their throughput.

    Keys:
        targets (targets): Number of targets that fit on the devices, with one session each.
        devices (devices): Number of used devices.
        tokens_per_s (tokens/s): Throughput of all targets, in steady state by StarSD's equations.
    """

    targets: int
    devices: int
    tokens_per_s: float


class Packings(msgspec.Struct, frozen=True):
    """Both ways to use the same devices.

    Keys:
        colocated: One drafter beside each target.
        shared: One drafter on a separate device, and targets on the others.
    """

    colocated: Packing
    shared: Packing


def colocated(memory: DeviceMemory, context: int, S_s: float, verify_s: float, tokens_per_round: float) -> Packing:
    """Pack one drafter beside each target. `context` is tokens, times are seconds.

    Pairs on a device share its time; a round takes S + t_v of it.
    """
    pair_bytes = memory.target.resident_bytes(1, context) + memory.drafter.resident_bytes(1, context)
    a_device = memory.device_bytes // pair_bytes
    busy = memory.devices if a_device else 0
    return Packing(memory.devices * a_device, memory.devices, busy * tokens_per_round / (S_s + verify_s))


def shared(
    memory: DeviceMemory, context: int, S_s: float, verify_s: float, communication_s: float, tokens_per_round: float
) -> Packing:
    """Pack one drafter on a separate device, and targets on the others, as many as fit into its cache.

    With k targets on a device, a verification waits for k - 1 others at worst: Z = t_c + k t_v. Equation (10) gives the
    rounds.
    """
    others = memory.devices - 1
    a_device = memory.device_bytes // memory.target.resident_bytes(1, context)
    cache_bytes = max(0, memory.device_bytes - memory.drafter.weights_bytes)
    targets = min(others * a_device, cache_bytes // (context * memory.drafter.kv_bytes_per_token))
    if targets == 0:
        return Packing(0, memory.devices, 0.0)
    return_s = communication_s + -(-targets // others) * verify_s
    return Packing(targets, memory.devices, throughput(targets, S_s, return_s, tokens_per_round))
