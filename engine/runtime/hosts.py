"""Nodes that a user starts by hand, on one host or on several: one drafter, and one process a target.

Each node writes its own records on its own clock; nothing compares the clocks of two hosts.
"""

import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import torch

from engine.decoding.models import is_folder_of_model
from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.runtime.answers import Answers, Continued, Drawn
from engine.runtime.clock import now_s
from engine.runtime.continuations import continuations_of
from engine.runtime.drafter import DrafterNode
from engine.runtime.keys import Keys, allowed_keys, check_door, check_line
from engine.runtime.node import Node
from engine.runtime.positions import with_positions
from engine.runtime.power import Device
from engine.runtime.process import THREADS
from engine.runtime.prompts import prompts_of
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.replayed_drafter import ReplayedDrafterNode
from engine.runtime.runnable import check_by_hand, check_can_run
from engine.runtime.shown import Asked, seen, shown
from engine.runtime.verifier import VerifierNode
from fleet.errors import InputError
from fleet.files import check_writable
from fleet.interrupts import ENDING, Interrupted
from fleet.records.recorded import Log
from fleet.records.run import make_run, write_run
from fleet.scenario.links import with_links_of_hosts
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet
from fleet.stations.outcomes import Outcomes
from fleet.stations.station import Station

NOTHING = Asked()
PATIENCE_S = 24 * 3600.0  # for a drafter that a target was started before; who runs it can end it


def serve_drafter(
    scenario: Scenario, host: str, port: int, out: Path | None, keys: Keys | None = None, asked: Asked = NOTHING
) -> None:
    """Draft for every target that connects, until a signal comes: records are written, and Interrupted raised."""
    check_door(host, keys)
    _prepare(out)
    compare_tokenizers(scenario)
    fleet, replayed = _settled(scenario), scenario.drafters.kind == "replayed"
    _check_by_hand(fleet)
    say = partial(_say_of, "drafter")
    kind = ReplayedDrafterNode if replayed else DrafterNode
    node = kind(fleet, address=f"tcp://{host}", port=port, keys=keys, say=say)
    with stopped_by_signals(node) as signals:
        what = "replayed" if replayed else f"model {scenario.drafters.model}"
        say(f"{what}, depth {scenario.drafters.depth}, for {_whom(host, keys)}; public port {node.port}")
        node.open()
        zero_s = now_s()
        with shown(node, node.fleet, zero_s, asked, None if replayed else _device(), say):
            log = node.serve(zero_s)
    _finish(scenario, node.fleet, log, out, signals)


def serve_verifier(
    scenario: Scenario,
    connect: str,
    target: int,
    out: Path | None,
    keys: Keys | None = None,
    asked: Asked = NOTHING,
) -> None:
    """Decode this target's share of the requests with the drafter at `connect` (host:port).

    A signal ends a real target after its step: its records are written, and Interrupted raised.
    """
    host, _, port = connect.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise InputError(f"--connect {connect}: write HOST:PORT, for example 192.0.2.7:5555; ports end at 65535")
    check_line(host, keys)
    fleet = _settled(scenario)
    _check_by_hand(fleet)
    if target >= fleet.verifiers.count:
        raise InputError(f"--target {target + 1}: the scenario has verifiers.count = {fleet.verifiers.count}")
    _prepare(out)
    compare_tokenizers(scenario)
    signals: list[int] = []
    addresses = {0: f"tcp://{host}:{port}"}
    say = partial(_say_of, f"target {target + 1}")
    if fleet.verifiers.kind == "replayed":
        replayed = ReplayedFleet(fleet, _answers(fleet), addresses, [target], keys, say)
        replayed.wait_for_welcomes(PATIENCE_S)
        zero_s = now_s()
        with seen(fleet, replayed.stations, zero_s, asked):
            log = replayed.serve(zero_s)
    else:
        node = VerifierNode(fleet, target, prompts_of(fleet), addresses, say=say, keys=keys)
        node.open()
        node.wait_for_welcomes(PATIENCE_S)
        with stopped_by_signals(node) as signals:
            if fleet.drafters.count:
                say(f"drafts come from {connect}")
            zero_s = now_s()
            with shown(node, fleet, zero_s, asked, _device(), say):
                log = node.serve(zero_s)
    if not signals:
        _say(f"target {target + 1}: done")
    _finish(scenario, fleet, log, out, signals)


def _settled(scenario: Scenario) -> Fleet:
    """Settle a scenario for nodes on hosts of their own, whose clocks nobody compares: links are those between them."""
    return with_links_of_hosts(with_positions(settle(scenario)))


def _answers(fleet: Fleet) -> Callable[[Station], Answers]:
    """What replayed targets answer: drawn where nothing real is drafted, else by recorded continuations."""
    if fleet.drafters.kind == "replayed":
        return partial(Drawn, Outcomes(fleet))
    continuations = continuations_of(fleet, Path("runs") / "continuations")
    return lambda _station: Continued(continuations)


@contextmanager
def stopped_by_signals(node: Node) -> Iterator[list[int]]:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the node after its step; a second one at once. Yield a list that holds it."""
    came: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if came:  # the step does not end
            raise Interrupted(number)
        came.append(number)
        node.stop()

    before = {
        number: signal.signal(number, stop) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def compare_tokenizers(scenario: Scenario) -> None:
    """Compare the tokenizers of drafter and target where this host has both; else say that nobody does."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    if drafters.kind != "model" or not drafters.count:
        return
    models = ("drafters.model", drafters.model, "drafter"), ("verifiers.model", verifiers.model, "target")
    for key, name, role in models:
        if not is_folder_of_model(name, role):
            _say(f"note: {key} = {name!r} is not on this host; whether its tokenizer is shared is not checked")
            return
    check_shared_tokenizer(drafters.model, verifiers.model)


def _check_by_hand(fleet: Fleet) -> None:
    """InputError for what cannot run, and for fleets whose nodes only `specfleet run` can connect."""
    check_can_run(fleet)
    check_by_hand(fleet)
    if fleet.drafters.count > 1:
        raise InputError(
            f"scenario {fleet.name!r}: drafters.count = {fleet.drafters.count}: nodes that are started by hand have "
            "one drafter; allowed: 1, or `specfleet run`, which starts all nodes on this host"
        )


def _prepare(out: Path | None) -> None:
    if out is not None:
        check_writable(out)
    torch.set_num_threads(THREADS)


def _finish(scenario: Scenario, fleet: Fleet, log: Log, out: Path | None, signals: Sequence[int]) -> None:
    """Write the records; Interrupted where a signal stopped the node."""
    if out is not None:
        write_run(make_run(scenario, "engine", log, fleet), out)
    if signals:
        raise Interrupted(signals[0], f"kept: the records until then in {out}" if out else "no records were asked for")
    if out is not None:
        _say(f"records: {out}")


def _device() -> Device:
    """What models run on here."""
    return "gpu" if torch.cuda.is_available() else "cpu"


def _whom(host: str, keys: Keys | None) -> str:
    """Who may connect, in words."""
    if keys is None:
        return "this host alone, without keys"
    assert keys.allowed is not None
    return f"whoever has one of {len(allowed_keys(keys.allowed))} keys in {keys.allowed}, at {host}"


def _say_of(name: str, line: str) -> None:
    _say(f"{name}: {line}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
