"""What stands in for a CUDA graph on a cpu: a recorder of passes, and a witness of the memory that they touch."""

from collections.abc import Callable

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from engine.decoding.graphs import Work


class Recorder:
    """Repeats work that it traced, or, if that takes too long, runs it again; counts both."""

    def __init__(self, trace: bool = True) -> None:
        self.trace = trace
        self.captured = self.replayed = 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1
        repeat = make_fx(work)() if self.trace else work

        def replay() -> torch.Tensor:
            self.replayed += 1
            return repeat()

        return replay


class Reads(TorchDispatchMode):
    """Notes the storages that some work reads or writes and did not make; knows afterwards whether they still live."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[int] = set()
        self.found: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        for tensor in tensors_in((args, kwargs)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.made:
                self.found[storage._cdata] = StorageWeakRef(storage)
        result = func(*args, **(kwargs or {}))
        self.made |= {tensor.untyped_storage()._cdata for tensor in tensors_in(result)} - self.found.keys()
        return result


def tensors_in(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]
