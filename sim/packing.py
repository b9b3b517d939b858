"""Packing: a drafter beside each target, or one shared drafter on a device of its own, on equally many devices."""

import msgspec

from fleet.scenario.memory import (
    DeviceMemory,
    Packing,
    sessions_of_drafter,
    targets_beside_drafters,
    targets_without_drafters,
)
from sim.analytic import throughput


class Packings(msgspec.Struct, frozen=True):
    """Both ways to use the same devices.

    Keys:
        colocated: A drafter of its own beside each target.
        shared: One drafter on a device of its own, and targets on the others.
    """

    colocated: Packing
    shared: Packing


def packings(
    memory: DeviceMemory, context: int, S_s: float, verify_s: float, communication_s: float, tokens_per_round: float
) -> Packings:
    """Pack targets with a drafter each, and with one shared drafter; times in seconds, context in tokens."""
    return Packings(
        colocated(memory, context, S_s, verify_s, tokens_per_round),
        shared(memory, context, S_s, verify_s, communication_s, tokens_per_round),
    )


def colocated(memory: DeviceMemory, context: int, S_s: float, verify_s: float, tokens_per_round: float) -> Packing:
    """Pack each target with a drafter of its own.

    The pairs of a device take turns on it: each drafts and verifies in S + t_v, so k pairs share one device's time.
    """
    a_device = targets_beside_drafters(memory.device_bytes, memory.target, memory.drafter, context)
    busy = memory.devices if a_device else 0
    return Packing(memory.devices * a_device, memory.devices, busy * tokens_per_round / (S_s + verify_s))


def shared(
    memory: DeviceMemory, context: int, S_s: float, verify_s: float, communication_s: float, tokens_per_round: float
) -> Packing:
    """Pack one drafter on a device of its own, and targets on the others, as many as its cache has room for.

    Targets of a device take turns verifying: with k of them a verification waits for k - 1 others at worst, so the
    return time is taken as Z = t_c + k t_v. Rounds by equation (10).
    """
    others = memory.devices - 1
    a_device = targets_without_drafters(memory.device_bytes, memory.target, context)
    targets = min(others * a_device, sessions_of_drafter(memory.device_bytes, memory.drafter, context))
    if targets == 0:
        return Packing(0, memory.devices, 0.0)
    return_s = communication_s + -(-targets // others) * verify_s
    return Packing(targets, memory.devices, throughput(targets, S_s, return_s, tokens_per_round))
