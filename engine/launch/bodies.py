"""What the processes of a run do, from their start to their end. Without torch: replayed stations do not import it."""

import multiprocessing
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from specfleet.engine.node.node import Stations
from specfleet.engine.node.observer import observed
from specfleet.engine.node.power import find_meter
from specfleet.engine.node.write_ahead_log import Served
from specfleet.fleet.errors import InputError

PROGRESS, SAMPLES = "progress", "samples"  # kinds of messages that need no answer
NO_MEMORY = "no memory"  # the kind of an error
LESS_MEMORY = "use smaller models, another precision, or fewer or shorter rows"
FULL = ("out of memory", "ALLOC_FAILED", "can't allocate memory")  # what errors of torch and CUDA then say
PATIENCE_S = 60.0  # for nodes of one host to connect
REPORT_S = 1.0  # timeout of a report when the launcher reads slowly
THREADS = 1  # of torch in each node: more would compete for the cores of a small host


@dataclass(eq=False)
class LauncherPipe:
    """A node's end of the pipe to its launcher. Messages of several threads are written whole; reports time out.

    - `watched`: whether the launcher wants reports. `power`: whether to measure the device.
    """

    connection: Connection
    watched: bool = False
    power: bool = False
    sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: tuple[str, Any]) -> None:
        """Send a message that the launcher waits for: its kind and its value; a launcher that ends takes none."""
        with self.sending, suppress(BrokenPipeError):
            self.connection.send(message)

    def report(self, progress: object) -> bool:
        """Send a report of progress; False if the launcher does not read, or is gone."""
        with self.sending:
            try:
                if not select.select([], [self.connection.fileno()], [], REPORT_S)[1]:
                    return False
                self.connection.send((PROGRESS, progress))
            except OSError:
                return False
        return True


def run_body(
    connection: Connection, options: tuple[bool, bool], gpu: str, body: Callable[..., Any], *arguments: Any
) -> None:
    """Run a body in its process; send its result or its error to the launcher."""
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before the first call to cuda
    pipe = LauncherPipe(connection, *options)
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    try:
        torch = sys.modules.get("torch")  # not every node uses it
        if torch is not None:
            torch.set_num_threads(THREADS)
        pipe.send(("result", body(pipe, *arguments)))
    except InputError as error:
        pipe.send(("input error", str(error)))
    except BaseException as error:  # noqa: BLE001  (whatever it is, the launcher must report it)
        if any(words in str(error) for words in FULL):
            name = multiprocessing.current_process().name
            pipe.send((NO_MEMORY, f"{name}: its device is out of memory; {LESS_MEMORY}"))
        else:
            pipe.send(("error", traceback.format_exc()))


def node_body(pipe: LauncherPipe, make: Callable[[], Stations]) -> Served:
    """Make a node and serve; return its log, and the new tokens of each request.

    It sends its address when it is connected, and receives the run's time zero. A node that serves others ends when
    it receives anything more. A process that replaces a killed one does not wait for its drafters.
    """
    node = make()
    node.open()
    if not node.life.number:
        node.wait_for_welcomes(PATIENCE_S)
    pipe.send(("ready", node.address))
    zero_s = pipe.connection.recv()
    if not node.ends:
        threading.Thread(target=_stop_on_message, args=(pipe, node), daemon=True).start()
    meter = find_meter()[0] if pipe.power else None
    with observed(node.stations, zero_s, pipe.report if pipe.watched else None, meter, node.workers) as samples:
        log = node.serve(zero_s)
    if samples:
        pipe.send((SAMPLES, samples))
    return Served(list(log), node.outputs, node.signals)


def plain_body(_pipe: LauncherPipe, work: Callable[..., Any], *arguments: Any) -> Any:
    """Work in this process without reports; return what `work` returns."""
    return work(*arguments)


def _end_with_launcher() -> None:
    """End this process when its launcher has ended."""
    launcher = multiprocessing.parent_process()
    assert launcher is not None
    launcher.join()
    os._exit(1)


def _stop_on_message(pipe: LauncherPipe, node: Stations) -> None:
    pipe.connection.recv()
    node.stop()
