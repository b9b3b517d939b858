"""Memory of a target's devices for its KV cache."""

from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.times.effects import USED, KvMemory

RESERVED_BYTES = 3 * 2**30  # activations, CUDA graphs and libraries, on each device
NOTE = f"estimated: {USED:.0%} of the memory (vLLM's default), less weights and 3 GiB for activations (assumed)"


def kv_memory(target: Placed, drafter: Placed | None) -> KvMemory:
    """Return the memory of one of the target's devices; a drafter beside it is split as its heads allow."""
    memory_bytes = target.device.memory_bytes.value
    split = drafter.shape.beside(target.parallel) if drafter else 1
    if drafter and drafter.device == target.device:
        split = min(split, drafter.parallel)  # the fullest device limits the cache
    return KvMemory(
        free_bytes=USED * memory_bytes - RESERVED_BYTES - target.weights_bytes / target.parallel,
        memory_bytes=memory_bytes,
        token_bytes=target.token_bytes(target.parallel),
        drafter_bytes=drafter.weights_bytes / split if drafter else 0.0,
        drafter_token_bytes=drafter.token_bytes(split) if drafter else 0.0,
    )
