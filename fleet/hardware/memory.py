"""Memory of a target's devices for its KV cache."""

from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.times.effects import KvMemory

USED = 0.92  # share of a device's memory that a server uses: vLLM's gpu_memory_utilization
RESERVED_BYTES = 3 * 2**30  # activations, CUDA graphs and libraries, on each device
NOTE = f"estimated: {USED:.0%} of the memory (vLLM's default), less weights and 3 GiB for activations (assumed)"


def kv_memory(target: Placed, drafter: Placed | None) -> KvMemory:
    """Return the memory of one of the target's devices; a drafter beside it is split as its heads allow."""
    free_bytes = USED * target.device.memory_bytes.value - RESERVED_BYTES - target.weights_bytes / target.parallel
    split = drafter.shape.beside(target.parallel) if drafter else 1
    return KvMemory(
        free_bytes=max(free_bytes, 0.0),
        token_bytes=target.token_bytes(target.parallel),
        drafter_bytes=drafter.weights_bytes / split if drafter else 0.0,
        drafter_token_bytes=drafter.token_bytes(split) if drafter else 0.0,
    )
