"""A sweep names its best cell, the cells that chance does not tell from it, and the knee."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from specfleet.experiments.console.printing import interval
from specfleet.experiments.sweep.cell import CellResult, analytic_values
from specfleet.experiments.sweep.findings import findings, is_level, knees, level_between, level_of, most_that_gain
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.analytic import N_full, rounds_per_s

COUNTS = list(range(1, 11))
full_from = "the drafter is busy from {} targets on (N_full, equations)".format
fast_to = "with up to {} targets each is as fast as without speculation (N_max, equations)".format


def cell(N: int, value: float, half: float = 2.0, depth: int | None = None) -> CellResult:
    metrics = {"throughput": Metric(value, value - half, value + half, "tokens/s")}
    key = {} if depth is None else {"drafters.depth": depth}
    return CellResult({"verifiers.count": N} | key, "sim", 3, "", metrics, {"N_full": 4.0, "N_max": 8.0})


def test_noise_on_a_plateau_is_not_the_answer() -> None:
    plateau = [cell(1, 100), cell(4, 298), cell(5, 301), cell(6, 300.5)]
    assert findings(plateau) == [
        "best throughput: 5 targets, 301 tokens/s (299 .. 303); level with it by the 95 % intervals: 6",
        f"knee: {full_from(4)}; {fast_to(8)}",
    ]
    wider = [cell(one.cell["verifiers.count"], one.metrics["throughput"].value, 3.0) for one in plateau]
    least = "best throughput: 4 targets, 298 tokens/s (295 .. 301); level with it by the 95 % intervals: 5, 6"
    assert findings(wider)[0] == least
    assert findings([*wider, cell(7, 299, 3.0)])[0].endswith(": 5 to 7")


def test_cells_of_several_keys_are_named_in_full_and_some_are_counted() -> None:
    level = findings([cell(N, 300, depth=2) for N in range(1, 13)])[0].partition("; ")[2]
    assert level.startswith("level with it by the 95 % intervals: 2 targets, depth 2; ")
    assert level.endswith("and 3 more")


def of_cell(metric: Metric, **key: Any) -> CellResult:
    cell = {name.replace("_", ".", 1): value for name, value in key.items()}
    return CellResult(cell, "sim", 3, "", {"throughput": metric})


def test_the_best_is_said_for_each_value_of_what_is_not_chosen() -> None:
    """Most tokens are at the best acceptance, which nobody chooses."""
    rates = {(0.6, 1): 50.0, (0.6, 4): 200.0, (0.6, 8): 201.0, (0.9, 1): 90.0, (0.9, 4): 470.0, (0.9, 8): 506.0}
    cells = [of_cell(Metric(rate, rate - 2, rate + 2, "tokens/s"), acceptance_beta=beta, verifiers_count=N)
             for (beta, N), rate in rates.items()]  # fmt: skip
    assert findings(cells) == [
        "best throughput at beta 0.6: 4 targets, 200 tokens/s (198 .. 202); level with it by the 95 % intervals: 8",
        "best throughput at beta 0.9: 8 targets, 506 tokens/s (504 .. 508); at the edge of what was swept: 8 targets",
    ]
    alone = [of_cell(Metric(1 / x, 1 / x, 1 / x, "tokens/s"), link_latency_s=x) for x in (0.05, 0.01, 0.1)]
    assert findings(alone) == ["throughput: 10 tokens/s at link latency 100 ms to 100 at link latency 10 ms"]
    assert findings(alone[:1] * 2) == ["throughput: 20 tokens/s in all cells"]


@pytest.mark.parametrize("half", [1.0, 2.0])
def test_level_is_symmetric_in_the_size_of_both_intervals(half: float) -> None:
    best = cell(2, 300, half).metrics["throughput"]
    just = math.hypot(half, 1.0)
    assert is_level(cell(1, 300 - 0.99 * just, 1.0).metrics["throughput"], best)
    assert not is_level(cell(1, 300 - 1.01 * just, 1.0).metrics["throughput"], best)


def test_without_intervals_only_equals_are_level() -> None:
    best = cell(2, 300, math.nan).metrics["throughput"]
    assert not is_level(cell(1, 299.9, math.nan).metrics["throughput"], best)
    assert is_level(cell(1, 300, math.nan).metrics["throughput"], best)


def test_failed_and_lone_cells_say_nothing() -> None:
    failed = CellResult({"verifiers.count": 2}, "sim", 3, "", error="InputError: no")
    assert findings([cell(1, 100), failed]) == []


def star(N: int, rounds_per_s: float, **analytic: float) -> CellResult:
    metrics = {
        "throughput": Metric(2 * rounds_per_s, math.nan, math.nan, "tokens/s"),
        "rounds_per_s": Metric(rounds_per_s, rounds_per_s, rounds_per_s, "1/s"),
        "throughput_per_target": Metric(2 * rounds_per_s / N, 2 * rounds_per_s / N, 2 * rounds_per_s / N, "tokens/s"),
    }
    return CellResult({"verifiers.count": N}, "sim", 3, "", metrics, {"N_full": 3.0, "N_max": 4.0} | analytic)


def test_the_knee_as_run_stands_beside_the_equations() -> None:
    rates = {1: 10.0, 2: 20.0, 3: 29.0, 4: 30.0, 5: 30.0}
    cells = [star(N, rate, standalone_tokens_per_s=15.0) for N, rate in rates.items()]
    assert findings(cells)[-1] == f"knee: {full_from(3)}, 4 as run; {fast_to(4)}, 4 as run"
    few = f"not reached in 1 to 3 as run; {fast_to(4)}, 3 or more as run"
    assert findings(cells[:3])[-1].endswith(few)


@pytest.mark.parametrize(
    ("alone", "half", "full", "most"),
    [
        (15.0, 0.0, "3 to 4", "4 to 5"), (10.0, 0.0, "3 to 4", "6 or more"),  # at 2 not full yet; at 6 none gains
        (15.0, 0.6, "3 to 4 as run (3 to 6)", "4 to 5 as run (2 to 5)"),
        (20.5, 0.6, "3 to 4 as run (3 to 6)", "0 as run (0 to 3)"),
        (15.0, math.nan, "3 to 4 as run (no interval)", "4 to 5 as run (no interval)"),
    ],
)  # fmt: skip
def test_a_knee_between_two_swept_numbers_is_both(alone: float, half: float, full: str, most: str) -> None:
    cells = []
    for N, rate in {1: 10.0, 2: 20.0, 4: 30.0, 6: 30.0}.items():
        cell = star(N, rate, standalone_tokens_per_s=alone)
        bounded = {
            name: msgspec.structs.replace(metric, low=metric.value - half, high=metric.value + half)
            for name, metric in cell.metrics.items()
        }
        cells.append(msgspec.structs.replace(cell, metrics=bounded))
    (line,) = knees(cells)
    assert f"(N_full, equations), {full}" in line
    assert f"(N_max, equations), {most}" in line


def test_without_a_plain_rate_n_max_is_the_equations_alone() -> None:
    cells = [star(N, 10.0) for N in (1, 2, 3)]
    assert findings(cells)[-1] == f"knee: {full_from(3)}, 1 as run; {fast_to(4)}"


def test_without_a_decode_time_n_max_is_not_known() -> None:
    profile = {"profile": {"name": "no decode", "draft": "2ms", "verify": "20ms"}}
    analytic = analytic_values(make_scenario(profile | {"acceptance": {"model": "geometric", "beta": 0.7}}))
    cells = [CellResult({"verifiers.count": N}, "sim", 3, "", star(N, 9.0).metrics, analytic) for N in (1, 2)]
    assert findings(cells)[-1].endswith("; N_max: not known (no decode time)")


@pytest.mark.parametrize("last", [7, 49, 50, 120])
def test_rates_that_still_rise_reach_no_plateau(last: int) -> None:
    cells = [star(N, 10.0 * N) for N in range(1, last + 1)]
    assert f"(N_full, equations), not reached in 1 to {last} as run" in findings(cells)[-1]
    assert findings(cells)[0].endswith(f"; at the edge of what was swept: {last} targets")


@pytest.mark.parametrize(
    ("quantity", "unit", "best"),
    [("tpot_s", "s", 1), ("tpot_p99_s", "s", 2), ("power_w", "W", 1), ("goodput_requests_per_s", "requests/s", 3)],
)
def test_of_times_power_and_costs_the_least_is_best(quantity: str, unit: str, best: int) -> None:
    def one(value: float) -> Metric:
        return Metric(value, value - 0.1, value + 0.1, unit)

    p99 = {1: 2.0, 2: 1.0, 3: 1.05}
    name = "tpot_s" if quantity == "tpot_p99_s" else quantity
    metrics = {N: {name: msgspec.structs.replace(one(float(N)), p99=one(p99[N]) if unit == "s" else None)} for N in p99}
    (line,) = findings([CellResult({"drafters.depth": N}, "sim", 3, "", metrics[N]) for N in p99], quantity)
    assert line.startswith(f"best {quantity}: depth {best}, ")
    assert line.endswith("; level with it by the 95 % intervals: 3") == (quantity == "tpot_p99_s")


def test_an_interval_that_begins_at_zero_says_its_upper_end() -> None:
    assert interval(Metric(1489.0, 0.0, 1771.0, "tokens/s")) == "up to 1771; needs more requests"
    assert interval(Metric(1489.0, 271.0, 3829.0, "tokens/s")) == "271 .. 3829; needs more requests"
    assert interval(Metric(0.1, 0.0, 0.2, "s")) == "0 .. 0.2"  # a wait may be none


def test_short_times_are_in_ms() -> None:
    times = {N: Metric(0.01 * N, 0.01 * N - 0.001, 0.01 * N + 0.001, "s") for N in (1, 2)}
    cells = [CellResult({"drafters.depth": N}, "sim", 3, "", {"tpot_s": time}) for N, time in times.items()]
    assert findings(cells, "tpot_s") == ["best tpot_s: depth 1, 10 ms (9 .. 11)"]


def test_findings_of_no_metric_are_refused() -> None:
    with pytest.raises(InputError, match=r"findings of speed: no metric; allowed: throughput$"):
        findings([cell(1, 100), cell(2, 100)], "speed")


def metrics_of(values: list[float], half: float = 0.0) -> list[Metric]:
    return [Metric(value, value - half, value + half, "1/s") for value in values]


@pytest.mark.parametrize("Z_s", [0.5, 2.0, 4.0, 6.0])
def test_constant_times_give_equation_12(Z_s: float) -> None:
    rates = [rounds_per_s(N, 1.0, Z_s) for N in COUNTS]
    assert level_of(COUNTS, rates) == N_full(1.0, Z_s)
    assert level_between(COUNTS, metrics_of(rates)) == (N_full(1.0, Z_s),) * 2


def test_its_range_covers_what_rates_without_chance_give() -> None:
    """95 % intervals of each rate: the range covers at least 95 %, and mostly more."""
    rng, inside, tries = np.random.default_rng(3), 0, 1000
    for _ in range(tries):
        Z_s, error = rng.uniform(1, 7), rng.uniform(0.001, 0.03)
        true = [rounds_per_s(N, 1.0, Z_s) for N in COUNTS]
        seen = [value + error * rng.standard_normal() for value in true]
        low, high = level_between(COUNTS, metrics_of(seen, 1.96 * error))
        inside += low <= level_of(COUNTS, true) <= high
    assert inside / tries > 0.95


def test_most_that_gain_are_those_whose_targets_are_as_fast_as_alone() -> None:
    each = [12.0, 12.0, 11.0, 10.0, 9.0]
    assert most_that_gain(COUNTS[:5], metrics_of(each), 10.0) == (4, 4, 4)
    assert most_that_gain(COUNTS[:5], metrics_of(each, 1.5), 10.0) == (4, 2, 5)
    assert most_that_gain(COUNTS[:5], metrics_of(each), 13.0) == (0, 0, 0)


def test_without_intervals_every_number_is_possible() -> None:
    each = [Metric(value, math.nan, math.nan, "1/s") for value in (1.0, 2.0, 3.0, 3.0)]
    assert level_between(COUNTS[:4], each) == (1, 4)
    assert most_that_gain(COUNTS[:4], each, 2.5)[0] == 4
