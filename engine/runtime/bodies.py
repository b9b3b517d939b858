"""What the processes of a run do, one function each. Those without a model are in `light.py`, which needs no torch.

A node says through its pipe that it is ready, is sent time zero, serves, and returns what it leaves.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from engine.runtime import light
from engine.runtime.answers import Continuation, Continued
from engine.runtime.batch import Batched, serve_batch
from engine.runtime.colocated import serve_colocated
from engine.runtime.device_lock import DeviceLock, file_lock, no_lock
from engine.runtime.drafter import DrafterNode
from engine.runtime.journal import FIRST, Life
from engine.runtime.launcher_pipe import LauncherPipe
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.router import RouterNode
from engine.runtime.verifier import VerifierNode
from fleet.records.recorded import Log
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario
from fleet.scenario.settled import Fleet


def drafter_body(pipe: LauncherPipe, fleet: Fleet, lock_file: Path | None, number: int, life: Life = FIRST) -> Log:
    """Serve as drafter `number` until told to stop."""
    node = DrafterNode(fleet, _lock(lock_file), port=life.port, number=number, life=life)
    node.open()
    pipe.send(("port", (node.port, node.fleet)))
    zero_s = pipe.recv()
    light.stop_on_message(pipe, node)
    with light.reported(pipe, fleet, node.stations, zero_s, [node.worker]):
        return node.serve(zero_s)


def verifier_body(
    pipe: LauncherPipe,
    fleet: Fleet,
    target: int,
    prompts: list[list[int]],
    addresses: dict[int, str],
    lock_file: Path | None,
    life: Life = FIRST,
) -> tuple[Log, dict[int, list[int]]]:
    """Decode the requests of a real target; return its log and the new tokens of each."""
    node = VerifierNode(fleet, target, prompts, addresses, _lock(lock_file), life=life)
    node.open()
    if not life.number:  # one that was killed decodes alone until it is welcomed
        node.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("ready", None))
    zero_s = pipe.recv()
    with light.reported(pipe, fleet, node.stations, zero_s, [node.worker]):
        log = node.serve(zero_s)
    return log, node.outputs


def router_body(pipe: LauncherPipe, fleet: Fleet, addresses: dict[int, str], vocabulary: int) -> Log:
    """Serve as the router until told to stop."""
    node = RouterNode(fleet, addresses, vocabulary)
    node.open()
    node.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("port", node.port))
    zero_s = pipe.recv()
    light.stop_on_message(pipe, node)
    with light.reported(pipe, fleet, node.stations, zero_s):
        return node.serve(zero_s)


def replayed_body(
    pipe: LauncherPipe,
    fleet: Fleet,
    continuations: list[Continuation],
    addresses: dict[int, str],
    numbers: Sequence[int] | None = None,
    life: Life = FIRST,
) -> Log:
    """Decode the requests of these replayed targets (all) with real drafters."""
    replayed = ReplayedFleet(fleet, lambda _station: Continued(continuations), addresses, numbers, life=life)
    if not life.number:
        replayed.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("ready", None))
    zero_s = pipe.recv()
    with light.reported(pipe, fleet, replayed.stations, zero_s):
        return replayed.serve(zero_s)


def colocated_body(
    pipe: LauncherPipe, scenario: Scenario, prompts: list[list[int]]
) -> tuple[Run, dict[int, list[int]]]:
    """Serve all stations in this process, in turns."""
    return serve_colocated(scenario, prompts, partial(light.reported, pipe))


def batch_body(pipe: LauncherPipe, scenario: Scenario, prompts: list[list[int]], signals: bool) -> Batched:
    """Serve a batch."""
    return serve_batch(scenario, prompts, signals, partial(light.reported, pipe))


def _lock(file: Path | None) -> DeviceLock:
    return file_lock(file) if file else no_lock
