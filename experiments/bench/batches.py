"""Batches: the three rules and rollback at growing sizes, and where their time goes."""

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.decoding.aligned import AlignedCache
from engine.decoding.decode import decode_plain
from engine.decoding.models import CausalLM
from engine.decoding.verify import Target
from engine.node.batch import drive, executor_of
from engine.node.batch_executor import BatchExecutor
from experiments.batch_rules import RULES, rule_of
from experiments.bench.interleaved import Done, Turn, interleaved
from fleet.records.matching import match
from fleet.records.run import Run, make_run
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.workload import streams_of
from fleet.stations.build import batch_station

SIZES = (1, 2, 4, 8, 16)


def batch_of(rule: str, size: int, depth: int, seed: int, precision: str) -> Scenario:
    """Twice as many requests as rows, at least four, with prompts of mixed length."""
    return make_scenario(
        {
            "name": rule, "seed": seed, "precision": precision,
            "batch": {"rule": rule_of(rule, size)},
            "drafters": {"depth": depth},
            "workload": {
                "requests": max(2 * size, 4), "prompt_tokens": {"low": 64, "high": 192}, "new_tokens": 64,
            },
        }
    )  # fmt: skip


def bench_batches(
    prompts: Sequence[list[int]], large: CausalLM, depth: int, repetitions: int, precision: str
) -> dict[int, dict[str, list[Turn]]]:
    """Let the rules decode the same requests in turn, at each size; the seed, and so the lengths, changes by round."""
    plain: dict[tuple[int, int], dict[int, list[int]]] = {}  # outputs of plain decoding by size and round

    def served(number: int, rule: str, size: int) -> Done:
        scenario = batch_of(rule, size, depth, number, precision)
        if (size, number) not in plain:
            plain[size, number] = decoded_plainly(scenario, large, prompts)
        fleet = settle(scenario)
        station = batch_station(fleet)
        executor = executor_of(fleet, station, large, prompts)
        started_s = time.perf_counter()
        run = make_run(scenario, "engine", drive(fleet, station, executor, large.device))
        wall_s = time.perf_counter() - started_s
        matched = match(executor.outputs, plain[size, number])
        figures = shares(run, executor, wall_s) | {"exact match": matched.exact, "partial match": matched.partial}
        return Done(sum(map(len, executor.outputs.values())), figures, wall_s)

    return {
        size: interleaved(
            {rule: partial(served, rule=rule, size=size) for rule in RULES}, repetitions, f"batches of {size}"
        )
        for size in SIZES
    }


def decoded_plainly(scenario: Scenario, large: CausalLM, prompts: Sequence[list[int]]) -> dict[int, list[int]]:
    """Return the tokens of plain decoding, one row at a time, after the prompts of the scenario's requests."""
    target = Target(large)
    return {
        request.number: decode_plain(target, prompts[request.number][: request.prompt_tokens], request.new_tokens)
        for requests in streams_of(settle(scenario)).values()
        for request in requests
    }


def shares(run: Run, executor: BatchExecutor, wall_s: float) -> dict[str, float]:
    """Acceptance, and shares of the time that neither draft nor verification takes.

    `realign`: the steps of that name; `pad`: bringing rows together in other steps; `host`: outside of all steps.
    """
    rows = run.frame()
    done = rows[rows.event == "done"]
    steps = done.drop_duplicates("step")
    realign_s = float(steps[steps.kind == "realign"].duration_s.sum())
    caches = (executor.target.cache, executor.drafter.cache)
    assembling_s = sum(cache.assembling_s for cache in caches if isinstance(cache, AlignedCache))
    return {
        "mean acceptance length": 1 + float(np.mean(done[done.kind == "verify"].accepted)),
        "realign, share": realign_s / wall_s,
        "pad, share": (assembling_s - realign_s) / wall_s if assembling_s else 0.0,
        "host, share": 1 - float(steps.duration_s.sum()) / wall_s,
    }
