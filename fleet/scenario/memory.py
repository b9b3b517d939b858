"""Memory: key-value caches, and how many targets fit on a device with their own drafter or a shared one."""

from typing import Annotated

import msgspec
from msgspec import Meta

Bytes = Annotated[int, Meta(ge=0, le=10**18)]
SomeBytes = Annotated[int, Meta(ge=1, le=10**18)]


class ModelMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of a model: its weights, and its cache for every token of context.

    Keys:
        weights_bytes: Size of its weights.
        kv_bytes_per_token: Size of its key-value cache for one token of one session.
    """

    weights_bytes: Bytes
    kv_bytes_per_token: SomeBytes

    def resident_bytes(self, sessions: int, context: int) -> int:
        """Size of the weights and the caches of so many sessions of that context."""
        return self.weights_bytes + sessions * context * self.kv_bytes_per_token


class DeviceMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of the devices, and of target and drafter on it.

    Keys:
        devices (devices): Number of devices.
        device_bytes: Memory of each of them.
        target: Memory of a target.
        drafter: Memory of a drafter.
    """

    devices: Annotated[int, Meta(ge=1, le=10**6)]
    device_bytes: SomeBytes
    target: ModelMemory
    drafter: ModelMemory


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


def targets_beside_drafters(device_bytes: int, target: ModelMemory, drafter: ModelMemory, context: int) -> int:
    """Return how many targets of one session each fit on a device, each with its own drafter."""
    pair = target.resident_bytes(1, context) + drafter.resident_bytes(1, context)
    return device_bytes // pair


def targets_without_drafters(device_bytes: int, target: ModelMemory, context: int) -> int:
    """Return how many targets of one session each fit on a device, with their drafter elsewhere."""
    return device_bytes // target.resident_bytes(1, context)


def sessions_of_drafter(device_bytes: int, drafter: ModelMemory, context: int) -> int:
    """Return how many sessions' caches fit on one drafter's device; 0 if the weights do not fit."""
    return max(0, device_bytes - drafter.weights_bytes) // (context * drafter.kv_bytes_per_token)
