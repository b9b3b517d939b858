"""Nodes that a user starts by hand, on one host or on several: drafters, a router, and targets.

Each node writes its own records by its own clock. Clocks of two hosts are never compared.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
import torch

from specfleet.engine.decoding.models import is_folder_of_model
from specfleet.engine.decoding.shared_tokenizer import check_shared_tokenizer
from specfleet.engine.launch.bodies import THREADS
from specfleet.engine.launch.placement import measured_here
from specfleet.engine.launch.runnable import check_by_hand
from specfleet.engine.launch.serve import process_of_drafter
from specfleet.engine.launch.supervisor import Watch, watched
from specfleet.engine.net.addresses import called_by_targets, drafters_at, shown
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.keys import Keys, allowed_keys, check_bind_host, check_connect_host
from specfleet.engine.node.build import largest_vocabulary, state_numbers, with_positions
from specfleet.engine.node.node import Site, Stations
from specfleet.engine.node.observer import observed
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import verifier_node
from specfleet.engine.node.router import router_node
from specfleet.engine.node.write_ahead_log import Life
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.engine.replayed.targets import ReplayedFleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable
from specfleet.fleet.interrupts import ENDING, Interrupted
from specfleet.fleet.records.power import curves_of, write_samples
from specfleet.fleet.records.run import make_run, write_run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario

PATIENCE_S = 24 * 3600.0  # for a drafter that starts later; the user can end the wait

Say = Callable[[str], None]


def serve_drafter(
    scenario: Scenario,
    host: str,
    port: int,
    out: Path | None,
    keys: Keys | None = None,
    number: int = 0,
    watch: Watch | None = None,
    power: Path | None = None,
) -> None:
    """Draft for every target that connects, until a signal: then write the records, and raise Interrupted.

    - `number`: of the drafter in the fleet, from 0.
    - `watch`: is called with the node's counters, twice a second and at the end.
    - `power`: a file for samples of its device's counters.
    """
    check_bind_host(host, keys)
    fleet = _resolved(scenario)
    if fleet.verifiers.drafts is not None:
        raise InputError("drafters.place = 'target': targets draft themselves, and there is no drafter to start")
    if number >= fleet.drafters.count:
        raise InputError(f"--number {number + 1}: the scenario has drafters.count = {fleet.drafters.count}")
    _prepare(out)
    compare_tokenizers(scenario)
    say = partial(_say_of, f"drafter {number + 1}" if fleet.drafters.count > 1 else "drafter")
    site = Site(f"tcp://{host}", keys, say, Life(port=port))
    node = process_of_drafter(fleet, number)[1](site=site)
    what = "replayed" if fleet.drafters.kind == "replayed" else f"model {fleet.drafters.model}"
    serves = f"{what}, depth {fleet.drafters.depth}, for {_clients(host, keys)}; public port {node.port}"
    _serve(node, scenario, serves, out, watch, say, power)


def serve_router(
    scenario: Scenario,
    drafters: Sequence[str],
    host: str,
    port: int,
    out: Path | None,
    keys: Keys | None = None,
    watch: Watch | None = None,
) -> None:
    """Route rounds to the drafters at these addresses (tcp://HOST:PORT), until a signal; as `serve_drafter`.

    Targets are answered once all drafters have answered.
    """
    check_bind_host(host, keys)
    _check_lines(drafters, keys)
    fleet = _resolved(scenario)
    if not fleet.routed:
        raise InputError(
            f"scenario {fleet.name!r}: nothing is to be routed; a router needs drafters.count of 2 or more and a "
            "drafters.route other than 'affinity', with which targets call the drafters themselves"
        )
    addresses = drafters_at(fleet, "--drafters", drafters)
    _prepare(out)
    say = partial(_say_of, "router")
    site = Site(f"tcp://{host}", keys, say, Life(port=port))
    node = router_node(fleet, addresses, largest_vocabulary(fleet), site, state_numbers(fleet))
    say(f"routes to {len(addresses)} drafters, for {_clients(host, keys)}; public port {node.port}")
    _serve(node, scenario, f"drafts come from {shown(drafters)}", out, watch, say)


def serve_verifier(
    scenario: Scenario,
    connect: Sequence[str],
    targets: Sequence[int],
    out: Path | None,
    keys: Keys | None = None,
    watch: Watch | None = None,
    power: Path | None = None,
) -> dict[int, list[int]]:
    """Decode these targets' share of the requests with the drafters, or the router, at `connect` (tcp://HOST:PORT).

    Only replayed targets may be several. A signal ends a node after its step: then the records are written, and
    Interrupted raised. Returns the new tokens of each request of a real target.
    """
    _check_lines(connect, keys)
    fleet = _resolved(scenario)
    replayed, name = fleet.verifiers.kind == "replayed", _named(targets)
    if len(targets) > 1 and not replayed:
        raise InputError(f"--target {name[8:]}: a real target has a process of its own; start one for each")
    addresses = called_by_targets(fleet, "--connect", connect)
    _prepare(out)
    compare_tokenizers(scenario)
    say = partial(_say_of, name)
    site = Site(keys=keys, say=say)
    if replayed:
        texts = [] if fleet.drafters.kind == "replayed" else continuations_of(fleet, Path("runs") / "continuations")
        node: Stations = ReplayedFleet(fleet, addresses, targets, texts, site)
    else:
        node = verifier_node(fleet, targets[0], prompts_of(fleet), addresses, site=site)
    begins = f"drafts come from {shown(list(addresses.values()))}" if addresses else ""
    _serve(node, scenario, begins, out, watch, say, power)
    return node.outputs


def _serve(
    node: Stations,
    scenario: Scenario,
    begins: str,
    out: Path | None,
    watch: Watch | None,
    say: Say,
    power: Path | None = None,
) -> None:
    """Connect a node and serve; then write its records. Raise Interrupted if a signal stopped it.

    `begins`: a line for its user when it begins.
    """
    node.open()
    node.wait_for_welcomes(PATIENCE_S)
    with stopped_by_signals(node) as signals:
        if begins:
            say(begins)
        zero_s = now_s()
        meter = measured_here(say) if power is not None else None
        with (
            watched(node.fleet, watch) as report,
            observed(node.stations, zero_s, report, meter, node.workers) as samples,
        ):
            log = node.serve(zero_s)
    if node.ends and not signals:
        say("done")
    if out is not None:
        run = make_run(scenario, "engine", log, node.fleet, torch.cuda.device_count())
        devices = curves_of(samples, [recorded.station.name for recorded in node.stations()])
        write_run(msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, devices=devices)), out)
    if power is not None and samples:
        write_samples(samples, power)
    if signals:
        raise Interrupted(signals[0], f"kept: the records until then in {out}" if out else "no records were asked for")
    if out is not None:
        _say(f"records: {out}")


@contextmanager
def stopped_by_signals(node: Stations) -> Iterator[list[int]]:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the node after its step, a second one at once; yield a list of the first."""
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if received:  # the step does not end
            raise Interrupted(number)
        received.append(number)
        node.stop()

    before = {
        number: signal.signal(number, stop) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def compare_tokenizers(scenario: Scenario) -> None:
    """Compare the tokenizers of drafter and target if this host has both; else say that they are not checked."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    if drafters.kind != "model" or not drafters.count:
        return
    models = ("drafters.model", drafters.model, "drafter"), ("verifiers.model", verifiers.model, "target")
    for key, name, role in models:
        if not is_folder_of_model(name, role):
            _say(f"note: {key} = {name!r} is not on this host; whether its tokenizer is shared is not checked")
            return
    check_shared_tokenizer(drafters.model, verifiers.model)


def _resolved(scenario: Scenario) -> Fleet:
    """Resolve a scenario for nodes on several hosts; the links are those between the hosts."""
    fleet = msgspec.structs.replace(with_positions(resolve(scenario)), one_clock=False)
    check_by_hand(fleet)
    return fleet


def _prepare(out: Path | None) -> None:
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # before CUDA starts: GPUs as NVML numbers them
    if out is not None:
        check_writable(out)
    torch.set_num_threads(THREADS)


def _check_lines(addresses: Sequence[str], keys: Keys | None) -> None:
    for address in addresses:
        check_connect_host(address.removeprefix("tcp://").rpartition(":")[0], keys)


def _named(targets: Sequence[int]) -> str:
    """Return "target 3", or "targets 1-4"."""
    first, last = targets[0] + 1, targets[-1] + 1
    return f"target {first}" if first == last else f"targets {first}-{last}"


def _clients(host: str, keys: Keys | None) -> str:
    """Return in words which clients may connect."""
    if keys is None:
        return "this host alone, without keys"
    assert keys.allowed is not None
    return f"clients with one of {len(allowed_keys(keys.allowed))} keys in {keys.allowed}, at {host}"


def _say_of(name: str, line: str) -> None:
    _say(f"{name}: {line}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
