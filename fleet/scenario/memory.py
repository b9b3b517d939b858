"""Memory of devices and models: the table `[memory]`."""

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
