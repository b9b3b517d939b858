"""Processes of nodes on this host: they start from a warm server, and end with their launcher."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import wait
from typing import Any, TypeVar

from specfleet.engine.launch.bodies import NO_MEMORY, PROGRESS, SAMPLES, plain_body, run_body
from specfleet.engine.net.addresses import short_names
from specfleet.fleet.errors import DeviceMemoryError, InputError, NodeDiedError, NodeKilledError
from specfleet.fleet.interrupts import deferred, unseen
from specfleet.fleet.records.schema import PowerSample

# Imported once, in the process that nodes are forked from. transformers would import the second when a model is loaded,
# two seconds a node; other architectures than Llama import their own file.
PRELOADED = [
    "specfleet.engine.launch.serve",
    "transformers.models.llama.modeling_llama",
    "specfleet.engine.launch.warmed",
]

UNGUARDED = 97  # exit code of a node that would start nodes, because it imports an unguarded script

T = TypeVar("T")

END_S = 0.5  # from asking a process to end until it is killed
ENDED = "the run is ended, and nothing was written"


class NodeError(RuntimeError):
    """A node's process ended with an error; the message holds its traceback."""


class NodeProcess:
    """A node's process, seen by its launcher. `body(pipe, *arguments)` runs in it, and returns its result.

    A body sends (kind, value) through its pipe when it is ready, and then receives the run's time zero.

    - `light`: whether it is a new process that imports only what it needs, instead of a fork of the warm server.
    - `watch`: is called with its reports.
    - `power`: whether it measures its device. `samples`: the measurements, once it has ended.
    - `gpu`: the only GPU that it sees, as CUDA_VISIBLE_DEVICES names it; empty for all.
    """

    def __init__(
        self,
        name: str,
        body: Callable[..., Any],
        *arguments: Any,
        light: bool = False,
        watch: Callable[[Any], None] | None = None,
        power: bool = False,
        gpu: str = "",
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):  # it is importing that script
            os._exit(UNGUARDED)
        # Preloaded modules may ask torch for a cuda device. With this set torch asks the driver's library instead of
        # initialising cuda, after which a forked process could not use it.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # GPUs are numbered as NVML numbers them
        context = get_context("spawn" if light else "forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.name = name
        self.watch = watch
        self.samples: list[PowerSample] = []
        self.kept: deque[tuple[str, Any]] = deque()  # messages that are not received yet
        self.gone = False  # whether its pipe has ended
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=run_body, args=(theirs, (watch is not None, power), gpu, body, *arguments), name=name, daemon=True
        )
        resource_tracker.ensure_running()  # so that it does not start inside of `unseen`
        if not light:
            with unseen(signal.SIGINT), short_names():  # Ctrl-C ends the launcher, which ends its nodes
                forkserver.ensure_running()
        with deferred(), unseen(signal.SIGINT) if light else nullcontext():  # an interrupted start prints errors
            try:
                self.process.start()
            except BrokenPipeError as error:
                raise NodeDiedError(f"{name} died while it started; {ENDED}") from error
        theirs.close()

    def receive(self, beside: Sequence["NodeProcess"] = ()) -> Any:
        """Wait for the next message of the node, and return its value. Reports of all nodes go to their watchers.

        NodeError if it failed, NodeDiedError if it or a node `beside` it died (NodeKilledError by SIGKILL), InputError
        if its input was bad, DeviceMemoryError if its device is out of memory.
        """
        while not self.kept and not self.gone:
            by_pipe = {node.pipe: node for node in (self, *beside) if not node.gone}
            for pipe in wait(list(by_pipe)):
                by_pipe[pipe].take()  # type: ignore[index]  # `wait` returns what it was given
            for node in beside:
                node.check()
        self.check()
        kind, value = self.kept.popleft()
        if kind == NO_MEMORY:
            raise DeviceMemoryError(value)
        if kind == "input error":
            raise InputError(value)
        if kind == "error":
            raise NodeError(f"{self.name} failed:\n{value}")
        return value

    def take(self) -> None:
        """Read a message: a report goes to the watcher, any other one is kept for `receive`."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.gone = True
            return
        kind, value = message
        if kind == SAMPLES:
            self.samples += value
        elif kind != PROGRESS:
            self.kept.append(message)
        elif self.watch is not None:
            self.watch(value)

    def check(self) -> None:
        """Raise NodeDiedError if the process has died without a message; InputError if an unguarded script is why."""
        if self.kept or not self.gone:
            return
        self.process.join()
        code = self.process.exitcode or 0
        if code == UNGUARDED:
            raise InputError(
                "the engine's processes import the script that starts them, and this one would start them again; "
                'put what runs the engine below the line `if __name__ == "__main__":`'
            )
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"died with exit code {code}"
        kind = NodeKilledError if code == -signal.SIGKILL else NodeDiedError
        raise kind(f"{self.name} {how}; {ENDED}")

    def kill(self) -> None:
        """Kill the process, for a fault."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def stall(self, stops: bool) -> None:
        """Stop the process, or let it continue, for a fault."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP if stops else signal.SIGCONT)

    def send(self, value: Any) -> None:
        """Send the time zero or a request to stop to the node, if it is alive."""
        with suppress(OSError):  # `check` reports it
            self.pipe.send(value)

    def end(self) -> None:
        """End the process."""
        end_all([self])


def in_process(name: str, work: Callable[..., T], *arguments: Any) -> T:
    """Return what `work` returns in a process of its own, which then ends and leaves no memory of a device in use.

    Errors as those of `NodeProcess.receive`.
    """
    node = NodeProcess(name, plain_body, work, *arguments)
    try:
        result: T = node.receive()
    finally:
        node.end()
    return result


def end_all(nodes: Iterable[NodeProcess]) -> None:
    """End these processes, stopped ones too."""
    alive = [node.process for node in nodes if node.process.is_alive()]
    for process in alive:
        process.terminate()
    for process in alive:
        process.join(END_S)
    for process in alive:
        if process.is_alive():
            process.kill()
        process.join()
