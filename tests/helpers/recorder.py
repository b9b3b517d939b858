"""Replaces CUDA graphs on a cpu: a recorder of passes, and a witness of the memory that they use."""

from collections.abc import Callable

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from specfleet.engine.decoding.graphs import Work

Operation = Callable[..., object]
Given, Named = tuple[object, ...], dict[str, object] | None  # arguments


class Recorder:
    """Repeats work with the result of `repeating`, and counts both."""

    def __init__(self, repeating: Callable[[Work], Work]) -> None:
        self.repeating = repeating
        self.captured = self.replayed = 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1
        repeat = self.repeating(work)

        def replay() -> torch.Tensor:
            self.replayed += 1
            return repeat()

        return replay


def run_again(work: Work) -> Work:
    """The work itself, which owns none of its tensors."""
    return work


def taped(work: Work) -> Work:
    """The operations of the work, on the tensors of this run."""
    with NoReading(), Tape() as tape:
        result = work()

    def repeat() -> torch.Tensor:
        now: dict[int, torch.Tensor] = {}  # results of this run, by those of the recorded run

        def as_now(tensor: torch.Tensor) -> torch.Tensor:
            return now.get(id(tensor), tensor)

        for func, args, kwargs, then in tape.calls:
            computed = func(*tree_map_only(torch.Tensor, as_now, args), **tree_map_only(torch.Tensor, as_now, kwargs))
            now |= {id(old): new for old, new in zip(tensors_in(then), tensors_in(computed), strict=True)}
        return now[id(result)]

    return repeat


class Tape(TorchDispatchMode):
    """Records every operation: function, arguments and result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Operation, Given, dict[str, object], object]] = []

    def __torch_dispatch__(self, func: Operation, types: object, args: Given = (), kwargs: Named = None) -> object:
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host reads a number"
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


class NoReading(TorchFunctionMode):
    """Refuses to bring tensors to the host: a device that captures cannot."""

    def __torch_function__(self, func: Operation, types: object, args: Given = (), kwargs: Named = None) -> object:
        assert func not in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.item), f"the host reads by {func}"
        return func(*args, **(kwargs or {}))


class Reads(TorchDispatchMode):
    """Records the storages that some work uses and did not make; checks afterwards whether they still live."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[int] = set()
        self.found: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Operation, types: object, args: Given = (), kwargs: Named = None) -> object:
        for tensor in tensors_in((args, kwargs)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.made:
                self.found[storage._cdata] = StorageWeakRef(storage)
        result = func(*args, **(kwargs or {}))
        self.made |= {tensor.untyped_storage()._cdata for tensor in tensors_in(result)} - self.found.keys()
        return result


def tensors_in(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]
