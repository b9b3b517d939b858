"""Memory: what a key-value cache takes, and how many targets fit on a device with a drafter each or a shared one."""

from typing import Annotated

import msgspec
from msgspec import Meta

Bytes = Annotated[int, Meta(ge=0, le=10**18)]
SomeBytes = Annotated[int, Meta(ge=1, le=10**18)]


class ModelMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model takes: its weights, and its cache for every token of context.

    Keys:
        weights_bytes: What its weights take.
        kv_bytes_per_token: What its key-value cache takes for one token of one session.
    """

    weights_bytes: Bytes
    kv_bytes_per_token: SomeBytes

    def resident_bytes(self, sessions: int, context: int) -> int:
        """Weights and the caches of so many sessions of that context."""
        return self.weights_bytes + sessions * context * self.kv_bytes_per_token


class DeviceMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much memory the devices have, and what target and drafter take of it.

    Keys:
        devices (devices): How many devices there are.
        device_bytes: Memory of each of them.
        target: What a target takes.
        drafter: What a drafter takes.
    """

    devices: Annotated[int, Meta(ge=1, le=10**6)]
    device_bytes: SomeBytes
    target: ModelMemory
    drafter: ModelMemory


class Packing(msgspec.Struct, frozen=True):
    """How many targets fit, and what they do.

    Keys:
        targets (targets): How many targets fit on the devices, with one session each.
        devices (devices): How many devices are used.
        tokens_per_s (tokens/s): What all targets decode in a second, in steady state by StarSD's equations.
    """

    targets: int
    devices: int
    tokens_per_s: float


def targets_beside_drafters(device_bytes: int, target: ModelMemory, drafter: ModelMemory, context: int) -> int:
    """Return how many targets of one session each fit on a device, if each brings a drafter of its own."""
    pair = target.resident_bytes(1, context) + drafter.resident_bytes(1, context)
    return device_bytes // pair


def targets_without_drafters(device_bytes: int, target: ModelMemory, context: int) -> int:
    """Return how many targets of one session each fit on a device, if their drafter is elsewhere."""
    return device_bytes // target.resident_bytes(1, context)


def sessions_of_drafter(device_bytes: int, drafter: ModelMemory, context: int) -> int:
    """Return how many sessions' caches one drafter's device holds; 0 if not even the weights fit."""
    return max(0, device_bytes - drafter.weights_bytes) // (context * drafter.kv_bytes_per_token)
