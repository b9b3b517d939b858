"""Nodes that a user starts by hand, on one host or on several: drafters, a router, and one process a real target.

Each node writes its own records on its own clock; nothing compares the clocks of two hosts.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import torch

from engine.decoding.folders import read_config
from engine.decoding.models import folder_of, is_folder_of_model
from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.runtime.addresses import called_by_targets, drafters_at, shown
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
from engine.runtime.router import RouterNode
from engine.runtime.routing_verifier import RoutingVerifierNode
from engine.runtime.runnable import check_by_hand
from engine.runtime.shown import Asked, on_show, seen
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
    scenario: Scenario,
    host: str,
    port: int,
    out: Path | None,
    keys: Keys | None = None,
    number: int = 0,
    asked: Asked = NOTHING,
) -> None:
    """Draft for every target that connects, until a signal comes: records are written, and Interrupted raised.

    `number`: which drafter of the fleet it is, from 0.
    """
    check_door(host, keys)
    fleet, replayed = _settled(scenario), scenario.drafters.kind == "replayed"
    check_by_hand(fleet)
    if number >= fleet.drafters.count:
        raise InputError(f"--number {number + 1}: the scenario has drafters.count = {fleet.drafters.count}")
    _prepare(out)
    compare_tokenizers(scenario)
    say = partial(_say_of, f"drafter {number + 1}" if fleet.drafters.count > 1 else "drafter")
    kind = ReplayedDrafterNode if replayed else DrafterNode
    node = kind(fleet, address=f"tcp://{host}", port=port, number=number, keys=keys, say=say)
    with stopped_by_signals(node) as signals:
        what = "replayed" if replayed else f"model {scenario.drafters.model}"
        say(f"{what}, depth {scenario.drafters.depth}, for {_whom(host, keys)}; public port {node.port}")
        node.open()
        zero_s = now_s()
        with on_show(node, node.fleet, zero_s, asked, None if replayed else _device(), say):
            log = node.serve(zero_s)
    _finish(scenario, node.fleet, log, out, signals)


def serve_router(
    scenario: Scenario,
    drafters: Sequence[str],
    host: str,
    port: int,
    out: Path | None,
    keys: Keys | None = None,
    asked: Asked = NOTHING,
) -> None:
    """Route rounds to the drafters at these addresses (tcp://HOST:PORT), until a signal comes; as `serve_drafter`.

    Targets that connect are answered once all drafters have answered.
    """
    check_door(host, keys)
    _check_lines(drafters, keys)
    fleet = _settled(scenario)
    check_by_hand(fleet)
    if not fleet.routed:
        raise InputError(
            f"scenario {fleet.name!r}: nothing is to be routed; a router needs drafters.count of 2 or more and a "
            "drafters.route other than 'affinity', with which targets call the drafters themselves"
        )
    addresses = drafters_at(fleet, "--drafters", drafters)
    _prepare(out)
    say = partial(_say_of, "router")
    node = RouterNode(fleet, addresses, _largest_vocabulary(fleet), f"tcp://{host}", port, keys, say)
    say(f"routes to {len(addresses)} drafters, for {_whom(host, keys)}; public port {node.port}")
    node.open()
    node.wait_for_welcomes(PATIENCE_S)
    with stopped_by_signals(node) as signals:
        say(f"drafts come from {shown(drafters)}")
        zero_s = now_s()
        with on_show(node, fleet, zero_s, asked, None, say):
            log = node.serve(zero_s)
    _finish(scenario, fleet, log, out, signals)


def _largest_vocabulary(fleet: Fleet) -> int:
    """Return the larger vocabulary of the models that this host has; 0 if it has none of them.

    InputError where drafts bring distributions over a vocabulary that nothing here tells.
    """
    sides = ((fleet.verifiers, "target"), (fleet.drafters, "drafter"))
    named = [(side.model, role) for side, role in sides if side.kind in ("real", "model")]
    here = [folder_of(model, role) for model, role in named if is_folder_of_model(model, role)]
    largest = max((int(read_config(folder).vocab_size) for folder in here), default=0)
    if fleet.workload.temperature and not largest and not fleet.vocabulary:
        raise InputError(
            f"verifiers.model = {fleet.verifiers.model!r} is not on this host, and a router must know how large drafts "
            "with their distributions are; its config.json is enough, or a profile with a vocabulary"
        )
    return largest


def serve_verifier(
    scenario: Scenario,
    connect: Sequence[str],
    targets: Sequence[int],
    out: Path | None,
    keys: Keys | None = None,
    asked: Asked = NOTHING,
) -> dict[int, list[int]]:
    """Decode these targets' share of the requests with the drafters, or the router, at `connect` (tcp://HOST:PORT).

    Several targets only where they are replayed. A signal ends a real target after its step: its records are written,
    and Interrupted raised. Returns the new tokens of each request that a real target decoded.
    """
    _check_lines(connect, keys)
    fleet = _settled(scenario)
    check_by_hand(fleet)
    replayed, name = fleet.verifiers.kind == "replayed", _named(targets)
    if len(targets) > 1 and not replayed:
        raise InputError(f"--target {name[8:]}: a real target has a process of its own; start one for each")
    addresses = called_by_targets(fleet, "--connect", connect, targets)
    _prepare(out)
    compare_tokenizers(scenario)
    signals: list[int] = []
    outputs: dict[int, list[int]] = {}
    say = partial(_say_of, name)
    if replayed:
        several = ReplayedFleet(fleet, _answers(fleet), addresses, targets, keys, say)
        several.wait_for_welcomes(PATIENCE_S)
        zero_s = now_s()
        with seen(fleet, several.stations, zero_s, asked):
            log = several.serve(zero_s)
    else:
        prompts = prompts_of(fleet)
        if fleet.routed and len(addresses) > 1:
            node: VerifierNode = RoutingVerifierNode(fleet, prompts, addresses, say=say, keys=keys)
        else:
            node = VerifierNode(fleet, targets[0], prompts, addresses, say=say, keys=keys)
        node.open()
        node.wait_for_welcomes(PATIENCE_S)
        with stopped_by_signals(node) as signals:
            if addresses:
                say(f"drafts come from {shown(list(addresses.values()))}")
            zero_s = now_s()
            with on_show(node, fleet, zero_s, asked, _device(), say):
                log = node.serve(zero_s)
        outputs = node.outputs
    if not signals:
        say("done")
    _finish(scenario, fleet, log, out, signals)
    return outputs


def _named(targets: Sequence[int]) -> str:
    """Return "target 3", or "targets 1-4"."""
    first, last = targets[0] + 1, targets[-1] + 1
    return f"target {first}" if first == last else f"targets {first}-{last}"


def _check_lines(addresses: Sequence[str], keys: Keys | None) -> None:
    for address in addresses:
        check_line(address.removeprefix("tcp://").rpartition(":")[0], keys)


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


def _prepare(out: Path | None) -> None:
    if out is not None:
        check_writable(out)
    torch.set_num_threads(THREADS)


def _finish(scenario: Scenario, fleet: Fleet, log: Log, out: Path | None, signals: Sequence[int]) -> None:
    """Write the records; Interrupted where a signal stopped the node."""
    if out is not None:
        write_run(make_run(scenario, "engine", log, fleet, torch.cuda.device_count()), out)
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
