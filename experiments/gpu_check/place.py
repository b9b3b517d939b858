"""Where a check runs: the device, and whether models and counts are tiny, which only tests ask for."""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import transformers

from engine.decoding.graphs import Graphs
from engine.decoding.models import CausalLM

T = TypeVar("T")
FORMAT = 1  # of results: another one makes those that exist count as missing


@dataclass(frozen=True, slots=True)
class Place:
    """A device; `tiny`: whether to run tiny models a few times, to test the check itself."""

    device: torch.device
    tiny: bool = False

    def pick(self, full: T, tiny: T) -> T:
        """Return what is measured here, or what stands for it in tests."""
        return tiny if self.tiny else full

    def facts(self) -> dict[str, object]:
        """What a result depends on: one that was made elsewhere is no result for here."""
        is_cuda = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if is_cuda else self.device.type,
            "tiny": self.tiny,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": str(transformers.__version__),
            "format": FORMAT,
        }

    def finish(self) -> None:
        """Wait until the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def say(text: str) -> None:
    """Report progress."""
    sys.stderr.write(f"gpu-check: {text}\n")
    sys.stderr.flush()


def run_again(work: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Stands for capturing a graph where none can be captured: the work runs eagerly each time."""
    return work


@contextlib.contextmanager
def graphs(*models: CausalLM, on: bool) -> Iterator[None]:
    """Let models run through graphs, or eagerly for now."""
    for model in models:
        if model.graphs is None:  # not on cuda
            model.graphs = Graphs(run_again)
        model.graphs.paused = not on
    try:
        yield
    finally:
        for model in models:
            assert model.graphs is not None
            model.graphs.paused = False
