"""Which resource a growing fleet uses up first, with 10,000 targets simulated.

Takes some five minutes of one core. The tables for `docs/scale.md` are left as `tables.md`.
"""

import argparse
import json
import math
import subprocess
import sys
import time
import timeit
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import specfleet
from bench.harness import Case, Report, Row, first_rows, text_of
from bench.large_fleets import (
    BITS,
    IN_GROUPS,
    IN_TURN,
    PLACES,
    TARGETS_OF_DRAFTER,
    Place,
    fleet_of,
    sessions_in_memory,
    star_of,
)
from bench.numbers import whole
from fleet.files import write_file
from fleet.policies.route import DrafterView, ShortestQueue

LARGE_DRAFTERS = 100_000
BY_LOOP, BY_SIMPY = 2, 1  # requests of a target: the compiled loop takes less time
AGES_S = (0.0, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    parser.add_argument("--drafters", type=whole, default=1000, help="drafters of the fleets")
    parser.add_argument("--routed", type=whole, default=50, help="drafters behind a router")


def study(options: argparse.Namespace) -> Report:
    """Simulate large fleets and compute larger ones; leave tables for the page."""
    fleets = first_rows(
        Case(f"{name}, {mode}", partial(simulated, place=name, drafters=options.drafters, mode=mode))
        for name, mode in product(PLACES, (IN_TURN, IN_GROUPS))
    )
    greedy = [name for name, place in PLACES.items() if place.temperature == 0]
    routed = first_rows(
        Case(
            f"{name}, news of {age_s:g} s",
            partial(simulated, place=name, drafters=options.routed, view_s=age_s),
        )
        for name, age_s in product(greedy, AGES_S)
    )
    tables = {
        "what is assumed": place_rows(),
        f"{TARGETS_OF_DRAFTER * options.drafters:,} targets, simulated and by equations": [
            fleet_row(one) for one in fleets
        ],
        "resources of a drafter": resource_rows(fleets),
        f"loss of throughput by the age of a router's news, %, {options.routed} drafters": view_rows(routed),
        "a router's decision": [decision_row(options.drafters)],
    }
    write_file(options.out / "tables.md", "\n\n".join(markdown(*table) for table in tables.items()) + "\n")
    return Report(tables)


def simulated(**keys: Any) -> Row:
    """Simulate in a process of its own, so that its memory and processor time are its own."""
    program = "import sys; from bench.scale import answer; answer(sys.argv[1])"
    command = [sys.executable, "-c", program, json.dumps(keys)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  (our own program)
    row: Row = json.loads(done.stdout)
    return row


def answer(question: str) -> None:
    """Simulate what a JSON object asks for, and write what came out to standard output."""
    sys.stdout.write(json.dumps(simulated_here(**json.loads(question))))


def simulated_here(**keys: Any) -> Row:
    """Simulate in this process; return the keys, the metrics, and what it cost. The peak is that of the process."""
    scenario = large(**keys)
    before_s = time.process_time()
    result = specfleet.simulate(scenario)
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    cpu_s = time.process_time() - before_s
    rows = result.run.columns()
    rounds = int((rows.event.among("done") & rows.kind.among("verify")).sum())
    return {
        **keys, **metrics, "rounds": rounds, "simulated s": float(rows.time_s.max()), "path": result.run.header.path,
        "processor s": cpu_s, "peak MB": peak_bytes() / 1e6,
    }  # fmt: skip


def large(place: str, drafters: int, mode: str = IN_TURN, view_s: float | None = None) -> specfleet.Scenario:
    """Return a fleet of a place; with `view_s`, the age of a router's news in seconds, its drafters have a router."""
    route, requests = None, BY_LOOP if mode == IN_TURN else BY_SIMPY
    if view_s is not None:
        requests, route = BY_SIMPY, {"route": "shortest-queue", "move": "shared", "view_delay_s": view_s}
    return fleet_of(PLACES[place], drafters, mode, requests, route)


def peak_bytes() -> int:
    """Return the most memory that this process had, as Linux knows it; `ru_maxrss` counts the process before it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def place_rows() -> list[Row]:
    """Return what is assumed of the places."""
    return [
        {
            "place": place.name, "targets": place.target, "drafters": place.draft,
            "latency, one way": f"{1e3 * place.latency_s:g} ms, {place.spread}",
            "a target's link": bits_text(place.access_bytes_per_s),
            "a drafter's port": bits_text(place.port_bytes_per_s),
            "age of a router's news": f"{1e3 * place.news_s:g} ms", "temperature": place.temperature,
        }
        for place in PLACES.values()
    ]  # fmt: skip


def bits_text(bytes_per_s: float) -> str:
    """Return a bandwidth in bits a second, as text."""
    bits = BITS * bytes_per_s
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"


def fleet_row(one: Row) -> Row:
    """Return what a simulated fleet did, what it cost, and what equations say of it."""
    by_star = star_of(PLACES[one["place"]]).tokens_per_s(TARGETS_OF_DRAFTER, one["mode"])
    here = one["drafters"] * by_star
    return {
        "place": one["place"], "drafts": one["mode"], "tokens/s, simulated": one["throughput"],
        "of a target": one["throughput"] / (TARGETS_OF_DRAFTER * one["drafters"]), "tokens/s, equations": here,
        "error of these, %": 100 * (here / one["throughput"] - 1),
        f"tokens/s of {TARGETS_OF_DRAFTER * LARGE_DRAFTERS:,} targets, equations": LARGE_DRAFTERS * by_star,
        "rounds": one["rounds"], "simulated s": one["simulated s"], "path": one["path"],
        "processor s": one["processor s"], "peak MB": one["peak MB"],
    }  # fmt: skip


def resource_rows(fleets: Sequence[Row]) -> list[Row]:
    """Return the resources of all places."""
    by_name = {(one["place"], one["mode"]): one for one in fleets}
    return [
        row
        for name, place in PLACES.items()
        for row in resources_of(place, by_name[name, IN_TURN], by_name[name, IN_GROUPS])
    ]


def resources_of(place: Place, in_turn: Row, in_groups: Row) -> list[Row]:
    """Return how far each resource of a place goes, given its simulations.

    "in use" is the share at TARGETS_OF_DRAFTER targets a drafter, "ends at" the targets a drafter at which all is used.
    """
    equations = star_of(place)
    alone_per_s = equations.rounds_per_s(1, IN_TURN)  # rounds of a target with a free drafter
    per_target = in_turn["rounds_per_s"] / (TARGETS_OF_DRAFTER * in_turn["drafters"])
    larger = max(in_turn["request_bytes"], in_turn["draft_bytes"])  # each way has the whole bandwidth
    sessions = sessions_in_memory(place)
    used_by_port = TARGETS_OF_DRAFTER * per_target * larger / place.port_bytes_per_s
    by_load, by_bytes = "use: simulated; end: equations", "bytes: simulated; bandwidth: assumed; end: equations"
    found = [
        ("drafter's time, in turn", in_turn["load"], equations.carries(IN_TURN), by_load),
        ("drafter's time, in groups", in_groups["load"], equations.carries(IN_GROUPS), by_load),
        ("drafter's port", used_by_port, place.port_bytes_per_s / (alone_per_s * larger), by_bytes),
        (
            "target's own link",
            per_target * larger / place.access_bytes_per_s,
            math.inf,
            "bytes: simulated; bandwidth: assumed",
        ),
        ("drafter's memory", TARGETS_OF_DRAFTER / sessions, sessions, "estimated; share of the device: assumed"),
    ]
    return [
        {"place": place.name, "resource": name, "in use": used, "ends at": end, "kinds of these numbers": how}
        for name, used, end, how in found
    ]


def view_rows(routed: Sequence[Row]) -> list[Row]:
    """Return by place what share of the throughput news of some age cost, beside news without age, in hundredths."""
    found = []
    for name in dict.fromkeys(one["place"] for one in routed):
        by_age = {one["view_s"]: one["throughput"] for one in routed if one["place"] == name}
        losses = {f"{1e3 * age:g} ms": 100 * (1 - rate / by_age[0.0]) for age, rate in by_age.items() if age}
        found.append({"place": name, **losses})
    return found


def decision_row(drafters: int, tries: int = 200) -> Row:
    """Return the processor time here of one decision of a router over so many drafters; the least of several tries."""
    views = [DrafterView(waiting=(7 * number) % 11) for number in range(drafters)]
    route = ShortestQueue()
    taken_s = min(timeit.repeat(lambda: route.choose(5, 0, views, 0), number=tries, repeat=5)) / tries
    return {"drafters": drafters, "us": 1e6 * taken_s, "decisions/s": 1 / taken_s}


def markdown(title: str, rows: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns), *([text_of(row.get(column)) for column in columns] for row in rows)]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
