"""Nodes that a user starts by hand, on one host or on several: drafters, a router, and targets, as a run makes them.

Each node writes its own records by its own clock. Clocks of two hosts are never compared.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal

import msgspec
import torch

from specfleet.engine.launch.bodies import THREADS
from specfleet.engine.launch.placement import measured_here
from specfleet.engine.launch.places import Place, drafter_place, router_place, targets_place
from specfleet.engine.launch.runnable import check_by_hand
from specfleet.engine.launch.serve import CONTINUATIONS, texts_of
from specfleet.engine.net.addresses import FREE, TCP, called, check_address, shown, socket_file
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.keys import Keys, allowed_keys
from specfleet.engine.node.build import check_models, with_positions
from specfleet.engine.node.node import Site, Stations
from specfleet.engine.node.observer import Watch, observed, watched
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable
from specfleet.fleet.interrupts import ENDING, Interrupted
from specfleet.fleet.records.power import curves_of, write_samples
from specfleet.fleet.records.run import make_run, write_run
from specfleet.fleet.scenario.names import ROUTER
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario

PATIENCE_S = 24 * 3600.0  # for a drafter that starts later; the user can end the wait

PORTS = {"drafter": 5555, "router": 5554}  # with keys
Role = Literal["drafter", "router", "target"]

Say = Callable[[str], None]


def serve_node(
    scenario: Scenario,
    role: Role,
    numbers: Sequence[int] = (0,),
    at: str | None = None,
    connect: Sequence[str] | None = None,
    keys: Keys | None = None,
    out: Path | None = None,
    watch: Watch | None = None,
    power: Path | None = None,
) -> dict[int, list[int]]:
    """Serve as one node of a fleet. Return the new tokens of each request of a real target.

    A target ends when its share of the requests is decoded. A drafter and a router serve until a signal. A signal ends
    a node after its step: then the records are written, and Interrupted is raised.

    - `numbers`: of the drafter, or of the targets, from 0. Only replayed targets may be several.
    - `at`: where a drafter or the router listens. `connect`: the drafters, or the router, that the node calls. Both as
      ZeroMQ's addresses; None for the socket files of this user.
    - `watch`: is called with the node's progress, twice a second and at the end.
    - `power`: a file for samples of its device's counters.
    """
    fleet = msgspec.structs.replace(with_positions(resolve(scenario)), one_clock=False)  # links are those between hosts
    check_by_hand(fleet)
    _check_role(fleet, role, numbers)
    addresses = {} if role == "drafter" else called(fleet, "--connect", connect, role == "target")
    if at is None and role != "target":
        station = ROUTER if role == "router" else fleet.drafter_name(numbers[0])
        at = socket_file(station) if keys is None else f"{TCP}0.0.0.0:{PORTS[role]}"
    for address in [*addresses.values(), *([] if at is None else [at])]:
        check_address(address, keys)
    if out is not None:
        check_writable(out)
    prepare_device()
    if role != "router":
        check_models(fleet, _say)
    say = partial(_say, node_name(fleet, role, numbers))
    node = _place(fleet, role, numbers, addresses).make(site=Site(at or FREE, keys, say))
    if node.address:
        say(f"serves {_clients(keys)} at {shown([node.address])}")
    node.open()
    node.wait_for_welcomes(PATIENCE_S)
    serve_and_keep(node, scenario, out, watch, say, power, list(addresses.values()))
    return dict(node.outputs)


def _check_role(fleet: Fleet, role: Role, numbers: Sequence[int]) -> None:
    """Raise InputError if the fleet has no such node."""
    named = f"--number {numbers[0] + 1}" + (f"-{numbers[-1] + 1}" if len(numbers) > 1 else "")
    if role == "drafter" and fleet.verifiers.drafts is not None:
        raise InputError("drafters.place = 'target': targets draft themselves, and there is no drafter to start")
    if role == "router" and not fleet.routed:
        raise InputError(
            f"scenario {fleet.name!r}: nothing is to be routed; a router needs drafters.count of 2 or more and a "
            "drafters.route other than 'affinity', with which targets call the drafters themselves"
        )
    if len(numbers) > 1 and not (role == "target" and fleet.verifiers.kind == "replayed"):
        raise InputError(f"{named}: a drafter or a real target has a process of its own; start one for each")


def _place(fleet: Fleet, role: Role, numbers: Sequence[int], addresses: Mapping[int, str]) -> Place:
    """Return the place of a node, as a run has it."""
    if role == "drafter":
        return drafter_place(fleet, numbers[0])
    if role == "router":
        return router_place(fleet, addresses)
    return targets_place(fleet, numbers, texts_of(fleet, CONTINUATIONS, numbers), addresses)


def node_name(fleet: Fleet, role: Role, numbers: Sequence[int]) -> str:
    """Return the name of a node for users: "drafter", "drafter 2", "router", "target 3", or "targets 1-4"."""
    first, last = numbers[0] + 1, numbers[-1] + 1
    if role == "router" or (role == "drafter" and fleet.drafters.count == 1):
        return role
    return f"{role} {first}" if first == last else f"{role}s {first}-{last}"


def serve_and_keep(
    node: Stations,
    scenario: Scenario,
    out: Path | None,
    watch: Watch | None,
    say: Say,
    power: Path | None = None,
    calls: Sequence[str] = (),
) -> None:
    """Serve with a connected node; then write its records. Raise Interrupted if a signal stopped it."""
    with stopped_by_signals(node) as signals:
        if calls:  # said once a signal keeps the records
            say(f"drafts come from {shown(calls)}")
        zero_s = now_s()
        meter = measured_here(say) if power is not None else None
        with watched(watch) as report, observed(node.stations, zero_s, report, meter, node.workers) as samples:
            log = node.serve(zero_s)
    if node.ends and not signals:
        say("done")
    if out is not None:
        devices = curves_of(samples, [recorded.station.name for recorded in node.stations()])
        write_run(make_run(scenario, "engine", log, node.fleet, torch.cuda.device_count(), devices=devices), out)
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


def prepare_device() -> None:
    """Let CUDA number GPUs as NVML does, before it starts; torch gets as many threads as in a run."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    torch.set_num_threads(THREADS)


def _clients(keys: Keys | None) -> str:
    """Return in words which clients may connect."""
    if keys is None:
        return "this user alone, without keys,"
    assert keys.allowed is not None
    return f"clients with one of {len(allowed_keys(keys.allowed))} keys in {keys.allowed}"


def _say(*parts: str) -> None:
    sys.stderr.write(": ".join(parts) + "\n")
