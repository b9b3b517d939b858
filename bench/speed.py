"""Speed of the simulator: stars beside bare SimPy, serving targets, growth, a queue beside peers, a trace, small runs.

The bare loop has the same network, and neither records nor computes anything. All times are processor times. "Metrics
only" is one simulation; `simulate` also simulates the same load without drafts, for `speedup`.
"""

import argparse
import gc
import gzip
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import simpy

import specfleet
from bench.growth import LOADS, QUEUES, TOKENS, costs, metrics_of, rows_of, served
from bench.harness import Aim, Options, Report, Row, compared, data_file, data_option, run
from specfleet.fleet.records.columns import Series
from specfleet.fleet.records.metrics.intervals import student_t_interval
from specfleet.fleet.records.metrics.measure import assess, measure
from specfleet.fleet.scenario.names import SimPath
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import observe, simulate

BARE, SIMPY = "bare SimPy loop", "specfleet, full records"
FAST, METRICS = "specfleet compiled, full records", "specfleet compiled, metrics only"
# Requests by targets: of the SimPy path, of the compiled loop with records, and without.
REQUESTS = {8: (400, 2000, 16_000), 64: (400, 2000, 16_000)}
BARE_ROUNDS = 20_000
RATE = "rounds/s"
FEW = 60  # requests of a small run
AIMS_S = {"specfleet --help": 0.3, f"specfleet simulate star, {FEW} requests": 0.7, f"metrics of {FEW} requests": 0.015}
ANSWER = 64  # tokens of a closed loop's answers
CLOSED: dict[str, tuple[float, int, Callable[[Scenario], object]]] = {  # most us a token; requests
    "metrics only": (0.1, 100_000, metrics_of),
    "full records": (0.5, 10_000, partial(simulate, path="fast")),
    "metrics only, cached": (0.25, 30_000, metrics_of),
}
CACHED = {"workload.shared": {"tokens": 1500, "groups": 20, "zipf": 1.0}, "verifiers.prefix_cache": True}
TIMES_BARE, GROWTH, MEMORY_MB, TRACE_S = 20, 1.3, 1000, 5.0  # aims
TRACE = "mooncake-conversation-first-4000.jsonl.gz"
TRACED = """name = "trace"
profile = "profile.json"
drafters = {count = 0}
verifiers = {max_num_seqs = 256, max_num_batched_tokens = 2048}
workload = {requests = 4000, arrivals = {process = "trace", file = "trace.jsonl"}}
"""

OPTIONS: Options = {
    "--repetitions": {"type": int, "default": 8, "help": "runs of each contestant"},
    "--most": {"type": int, "default": 10**6, "help": "requests of the largest simulation, a power of ten"},
    **data_option(TRACE),
}


def study(options: argparse.Namespace) -> Report:
    """Hold the figures of the simulator against their aims."""
    repetitions, tables, aims = options.repetitions, dict[str, list[Row]](), closed(options.repetitions)
    for targets in REQUESTS:
        rows = compared(run(contestants(targets), repetitions, 1), RATE, BARE)
        tables[f"one star of {targets} targets"] = rows
        share, low, high = (1 / rows[-1][name] for name in (f"times {BARE}", "ratio to", "ratio from"))
        judged = f"star of {targets}, metrics only, share of bare SimPy's time"
        aims.append(Aim(judged, share, 1 / TIMES_BARE, low, high))
    sizes = [10**power for power in range(4, len(str(options.most)))]
    grown = costs(list(LOADS), sizes)
    rows = tables["loads of a target: us a token, MB"] = rows_of(grown, sizes, TOKENS)
    aims += [Aim(f"{row['work']}, growth of time by ten times the requests", row["growth"], GROWTH) for row in rows]
    aims += [Aim(f"{name}, peak memory, MB", own[-1].memory_mb, MEMORY_MB) for name, own in grown.items()]
    tables["M/M/1 at load 0.9: us a request, MB"] = rows_of(costs(list(QUEUES), sizes[:2]), sizes[:2], 1)
    if options.data is not None:
        aims += traced(data_file(options.data, TRACE), options.out)
    return Report(tables, aims + waits(repetitions))


def closed(repetitions: int) -> list[Aim]:
    """Measure a closed loop of 64 rows with drafts on the target's device; also with beginnings that are cached."""
    scenarios = {
        name: change_scenario(served(requests, ANSWER), CACHED if "cached" in name else {})
        for name, (_, requests, _) in CLOSED.items()
    }
    works = {name: partial(_used_s, partial(CLOSED[name][2], scenario)) for name, scenario in scenarios.items()}
    aims = []
    for name, times_s in run(works, repetitions, cold=1).items():
        most_us, requests, _ = CLOSED[name]
        us = [used_s / requests / ANSWER * 1e6 for used_s in times_s]
        judged = f"64 rows with drafts, {name}, us a token"
        aims.append(Aim(judged, float(np.mean(us)), most_us, *student_t_interval(us)))
    return aims


def traced(file: Path, folder: Path) -> list[Aim]:
    """Simulate a trace on one and on eight targets by the command line."""
    (folder / "trace.jsonl").write_bytes(gzip.decompress(file.read_bytes()))
    (folder / "trace.toml").write_text(TRACED)
    estimated = "profile estimate --target llama-3.1-8b@h100 --engine vllm -o"
    _specfleet(*estimated.split(), str(folder / "profile.json"))
    aims = []
    for targets in (1, 8):
        words = ("simulate", str(folder / "trace.toml"), "--path", "fast", "--set", f"verifiers.count={targets}")
        used_s = _used_s(partial(_specfleet, *words))
        aims.append(Aim(f"Mooncake's 4,000 rows on {targets} of 8B on H100, start included, s", used_s, TRACE_S))
    return aims


def contestants(targets: int) -> dict[str, Callable[[], Row]]:
    """Return the simulator's ways and the bare loop, for a star of so many targets."""
    by_simpy, by_loop, unrecorded = REQUESTS[targets]
    works: dict[str, Callable[[], int]] = {
        BARE: lambda: bare_rounds(targets, BARE_ROUNDS),
        SIMPY: lambda: simulated_rounds(star(by_simpy, targets), "simpy"),
        FAST: lambda: simulated_rounds(star(by_loop, targets), "fast"),
        METRICS: lambda: measured_rounds(star(unrecorded, targets)),
    }
    return {name: partial(rate_of, work) for name, work in works.items()}


def rate_of(rounds: Callable[[], int]) -> Row:
    """Complete rounds; return how many a second of processor time."""
    gc.collect()
    started_s = time.process_time()
    completed = rounds()
    return {RATE: completed / (time.process_time() - started_s)}


def star(requests: int, targets: int) -> Scenario:
    """Return a star with exponential times: the network of the bare loop."""
    profile = {
        "name": "bench",
        "draft": {"base_s": 1.0, "spread": "exponential"},
        "verify": {"base_s": 4.0, "spread": "exponential"},
        "link": {"latency_s": 0.1},
    }
    return make_scenario(
        {
            "name": "bench", "profile": profile, "acceptance": {"model": "geometric", "beta": 0.8},
            "verifiers": {"count": targets},
            "workload": {"requests": requests, "prompt_tokens": 10, "new_tokens": 100},
        }
    )  # fmt: skip


def simulated_rounds(scenario: Scenario, path: SimPath) -> int:
    """Simulate with full records; return the completed rounds."""
    rows = simulate(scenario, path=path).columns()
    return int((rows.event.among("done") & rows.kind.among("verify")).sum())


def measured_rounds(scenario: Scenario) -> int:
    """Simulate without records and compute all metrics; return the completed rounds."""
    findings = observe(scenario, path="fast")
    assess(findings)
    assert findings.verified is not None
    lengths = findings.verified.acceptance_length
    return int(lengths.counts.sum()) if isinstance(lengths, Series) else len(lengths)


def bare_rounds(targets: int, rounds: int) -> int:
    """Complete `rounds` in a bare SimPy loop of the same network: resources and timeouts."""
    env = simpy.Environment()
    rng = np.random.default_rng(0)
    drafter = simpy.Resource(env)
    completed = 0

    def target(verifier: simpy.Resource) -> Iterator[simpy.Event]:
        nonlocal completed
        while completed < rounds:
            yield env.timeout(0.1)
            with drafter.request() as turn:
                yield turn
                yield env.timeout(rng.exponential(1.0))
            yield env.timeout(0.1)
            with verifier.request() as turn:
                yield turn
                yield env.timeout(rng.exponential(4.0))
            completed += 1

    for _ in range(targets):
        env.process(target(simpy.Resource(env)))
    env.run()
    return completed


def waits(repetitions: int) -> list[Aim]:
    """Measure what every user waits for, and hold its mean against what it may be."""
    few = f"workload.requests={FEW}"
    small = specfleet.simulate("star", {"workload.requests": FEW}).run
    works: list[Callable[[], object]] = [
        partial(_specfleet, "--help"), partial(_specfleet, "simulate", "star", "--set", few), partial(measure, small),
    ]  # fmt: skip
    used = {name: partial(_used_s, work) for name, work in zip(AIMS_S, works, strict=True)}
    aims = []
    for name, times_s in run(used, repetitions, cold=1).items():
        aims.append(Aim(f"{name}, processor s", float(np.mean(times_s)), AIMS_S[name], *student_t_interval(times_s)))
    return aims


def _specfleet(*arguments: str) -> None:
    command = [sys.executable, "-m", "specfleet", *arguments]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603  (our own program)


def _used_s(work: Callable[[], object]) -> float:
    """Do some work; return the processor time of this process and of those that it waits for."""

    def used_s() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    begun_s = used_s()
    work()
    return used_s() - begun_s
