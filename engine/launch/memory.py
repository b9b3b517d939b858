"""Memory of GPUs: what each process of a run needs, before it loads a model, and what is free.

Weights follow from the tensors' sizes and the precision, caches from config.json and the rows of the run. What else a
process takes is assumed. On a CPU nothing is checked: models share its memory with files that it keeps for them, so
that what is free says little, and a process without room ends in one line there, too.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from specfleet.engine.decoding.cache import shape_of
from specfleet.engine.decoding.checkpoints import count_numbers, stored_tensors
from specfleet.engine.decoding.eagle_files import read_head_config
from specfleet.engine.decoding.folders import read_config
from specfleet.engine.decoding.models import PRECISIONS, folder_of
from specfleet.engine.decoding.pages import whole_pages
from specfleet.engine.decoding.quantised import BITS
from specfleet.engine.launch.placement import gpus_of
from specfleet.engine.node.build import borrowed_of, head_folder
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolved import Fleet

CONTEXT_BYTES = 2**30  # of each process, assumed: CUDA context, workspaces of libraries, activations, unused blocks
GRAPHS_BYTES = 2**29  # of each process, assumed: the CUDA graphs of its repeated shapes


class ModelBytes(msgspec.Struct, frozen=True):
    """Bytes of a model on its device: its weights, and the cache of one token."""

    weights_bytes: int = 0
    token_bytes: int = 0

    def with_cache(self, tokens: int) -> int:
        """Return the bytes of the weights and a cache of `tokens`."""
        return self.weights_bytes + tokens * self.token_bytes


def target_bytes(fleet: Fleet) -> ModelBytes:
    """Return the bytes of the fleet's target."""
    return _model_bytes(fleet.verifiers.model, "target", fleet.precision)


def drafter_bytes(fleet: Fleet) -> ModelBytes:
    """Return the bytes of the fleet's drafter; those of an EAGLE head without what it borrows from its target."""
    kind = fleet.drafters.kind
    if kind == "model":
        return _model_bytes(fleet.drafters.model, "drafter", fleet.precision)
    if kind != "eagle":
        return ModelBytes()
    number_bytes, config = PRECISIONS[fleet.precision].itemsize, read_config(folder_of(fleet.verifiers.model, "target"))
    folder = head_folder(fleet)
    head = {"hidden_size": config.hidden_size} | read_head_config(folder) | {"num_hidden_layers": 1}
    return ModelBytes(number_bytes * count_numbers(folder), number_bytes * shape_of(SimpleNamespace(**head)).numbers)


def borrowed_bytes(fleet: Fleet) -> int:
    """Return the bytes of the target that a drafter's process loads beside its head."""
    if fleet.drafters.kind != "eagle":
        return 0
    folder = folder_of(fleet.verifiers.model, "target")
    return PRECISIONS[fleet.precision].itemsize * count_numbers(folder, borrowed_of(fleet))


def process_bytes(*held_bytes: int) -> int:
    """Return the bytes of a process that holds these models and caches."""
    return sum(held_bytes) + CONTEXT_BYTES + GRAPHS_BYTES


def needs_of(fleet: Fleet, gpus: Sequence[str]) -> dict[str, int]:
    """Return the bytes that a run of the fleet on this host needs on each of its GPUs, by their names."""
    drafters, verifiers, row = fleet.drafters, fleet.verifiers, whole_pages(fleet.room.longest_row)
    if not gpus:
        return {}
    streams, places = max(fleet.streams or fleet.workload.requests, verifiers.count), gpus_of(fleet, gpus)
    own = dict[str, int]()
    if drafters.stations and drafters.kind != "replayed":
        cache_tokens = -(-streams // drafters.stations) * row
        drafting = process_bytes(drafter_bytes(fleet).with_cache(cache_tokens), borrowed_bytes(fleet))
        own |= dict.fromkeys(fleet.drafter_names, drafting)
    if verifiers.kind == "real":
        rows = min(-(-streams // verifiers.count), verifiers.batching.max_num_seqs)
        cache_tokens = rows * row * (1 if verifiers.aligned is None else 2)  # aligned rows move to new storage
        beside = drafter_bytes(fleet).with_cache(cache_tokens) if verifiers.drafts is not None else 0
        verifying = process_bytes(target_bytes(fleet).with_cache(cache_tokens), beside)
        own |= {verifier_name(number): verifying for number in range(verifiers.count)}
    needs = dict.fromkeys(gpus, 0)
    for station, need_bytes in own.items():
        needs[places.get(station, gpus[0])] += need_bytes
    return needs


def free_bytes(gpus: Sequence[str], nvml: Any = None) -> dict[str, int]:
    """Return the free memory of each GPU, by its name in CUDA_VISIBLE_DEVICES; without those that NVML does not know.

    `nvml`: replaces the module pynvml; None imports it.
    """
    if nvml is None:
        try:
            import pynvml as nvml  # noqa: PLC0415  (optional, and of no use without a GPU)
        except ImportError:
            return {}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return {}
    free = dict[str, int]()
    for gpu in gpus:
        try:
            by_number = gpu.isdigit()
            handle = nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if by_number else nvml.nvmlDeviceGetHandleByUUID(gpu)
            free[gpu] = int(nvml.nvmlDeviceGetMemoryInfo(handle).free)
        except nvml.NVMLError:  # an integrated GPU has no memory of its own
            continue
    return free


def lacking(needs: Mapping[str, int], free: Mapping[str, int]) -> str | None:
    """Return what the first GPU without room needs, and what it has free; None if there is room.

    >>> lacking({"0": 31_000_000_000}, {"0": 24_000_000_000})
    "needs 31.0 GB of a GPU's memory (estimated), and 24.0 GB are free"
    >>> lacking({"0": 31_000_000_000}, {})
    """
    for gpu, need_bytes in needs.items():
        if gpu in free and need_bytes > free[gpu]:
            need, left = (f"{count / 1e9:.1f} GB" for count in (need_bytes, free[gpu]))
            return f"needs {need} of a GPU's memory (estimated), and {left} are free"
    return None


def _model_bytes(model: str, role: str, precision: str) -> ModelBytes:
    folder, number_bytes = folder_of(model, role), PRECISIONS[precision].itemsize
    weights_bytes = number_bytes * count_numbers(folder)
    if precision in BITS:
        matrices = [name for name, stored in stored_tensors(folder).items() if ".layers." in name and stored.is_matrix]
        weights_bytes -= int((number_bytes - BITS[precision] / 8) * count_numbers(folder, matrices))
    return ModelBytes(weights_bytes, number_bytes * shape_of(read_config(folder)).numbers)
