"""Processes of a fleet: started from a warm server, told to begin, asked for their result, never left behind."""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from fleet.errors import InputError

# Imported once, in the process that nodes are forked from. The second is what transformers imports only when a model is
# loaded: two seconds a node; another architecture than Llama adds its own file to it.
PRELOADED = ["engine.runtime.serve", "transformers.models.llama.modeling_llama"]

THREADS = 1  # of torch in each node; more would fight over the cores of a small host


class NodeError(RuntimeError):
    """A node's process ended with an error; the message holds its traceback."""


class Node:
    """A process of the fleet as its launcher sees it: it says `ready`, is told to begin, and returns its result."""

    def __init__(self, name: str, body: Callable[..., Any], *arguments: Any) -> None:
        # What is preloaded may ask torch for a cuda device: told so, torch asks the driver's library instead of
        # initialising cuda, which no process could use any more that is forked from there.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.name = name
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_node, args=(theirs, body, *arguments), name=name, daemon=True)
        self.process.start()
        theirs.close()

    def receive(self) -> Any:
        """Wait for what the node says next; NodeError if it failed or died."""
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise NodeError(f"{self.name} died with exit code {self.process.exitcode}") from None
        if kind == "input error":
            raise InputError(value)
        if kind == "error":
            raise NodeError(f"{self.name} failed:\n{value}")
        return value

    def tell(self, word: Any) -> None:
        """Send a word to the node."""
        self.pipe.send(word)

    def end(self) -> None:
        """Make sure that the process is gone."""
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


def _node(pipe: Connection, body: Callable[..., Any], *arguments: Any) -> None:
    """Run a node's body in its process; whatever goes wrong is told to the launcher."""
    try:
        _limit_threads()
        pipe.send(("result", body(pipe, *arguments)))
    except InputError as error:
        pipe.send(("input error", str(error)))
    except BaseException as error:  # noqa: BLE001  (the launcher must learn of it, whatever it is)
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which not every node imports
            name = multiprocessing.current_process().name
            advice = "use smaller models, another precision, or fewer or shorter rows"
            pipe.send(("input error", f"{name}: its device is out of memory; {advice}"))
        else:
            pipe.send(("error", traceback.format_exc()))


def _limit_threads() -> None:
    """Limit torch to THREADS, where the node uses torch at all."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(THREADS)
