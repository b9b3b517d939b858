"""The five lines that come first of a run, and that all metrics are one option away."""

import math
import re
from typing import Any

import msgspec
import pytest

import specfleet
from specfleet.experiments.console.headline import headline
from specfleet.experiments.console.printing import interval, number
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import with_percentiles, without_intervals
from specfleet.sim.run import simulate
from tests.helpers.cli import Say
from tests.helpers.stars import star

NAMES = ["throughput", "speed", "waiting", "load", "acceptance"]


def test_without_a_drafter_there_is_neither_load_nor_acceptance() -> None:
    lines = headline(specfleet.simulate("star", {"drafters.count": 0, "workload.requests": 20}).metrics)
    assert list(lines) == NAMES[:3]
    assert "drafter" not in " ".join(lines.values())


@pytest.mark.parametrize("requests", [12, 400])
def test_every_value_of_a_line_is_that_of_its_metrics(requests: int) -> None:
    """Whether or not a run is long enough for intervals."""
    metrics = measure(simulate(star(workload={"requests": requests})))
    lines = headline(metrics)
    assert f"{number(metrics['throughput'].value)} tokens/s" in lines["throughput"]
    for percent in (50, 99):
        tpot = with_percentiles(metrics)[f"tpot_p{percent}_s"].value
        assert f"{number(1 / tpot)} at P{percent}" in lines["speed"]
        assert f"{number(1000 * tpot)} (" in lines["speed"]
    assert f"{number(100 * metrics['load'].value)} % of the time" in lines["load"]
    assert f"{metrics['mean_acceptance_length'].value:.2f} tokens a verification" in lines["acceptance"]
    assert f"({interval(metrics['throughput'])})" in lines["throughput"]


def test_too_few_requests_for_an_interval_say_how_many_would_do() -> None:
    throughput = measure(simulate(star(workload={"requests": 12})))["throughput"]
    for times, said in ((2.41, "2.5"), (50.0, "50")):
        short = msgspec.structs.replace(throughput, times_longer=times, drifting=False)
        assert interval(short) == f"rough: an interval needs {said} times as many requests"


GOALS, PRICES = {"tpot_s": 0.05, "ttft_s": 1.0}, {"target_per_hour": 3.0, "drafter_per_hour": 0.4, "unit": "EUR"}
POWER = {"power": {"idle_w": 50.0, "draft_w": 100.0, "verify_w": 300.0}}


@pytest.mark.parametrize(
    ("tables", "further"),
    [
        ({"slo": GOALS}, ["goals"]),
        ({"cost": PRICES}, ["cost"]),
        ({"profile": POWER}, ["cost"]),
        ({"slo": GOALS, "cost": PRICES, "profile": POWER}, ["goals", "cost"]),
    ],
)
def test_goals_and_costs_of_the_scenario_have_a_line_each(tables: dict[str, Any], further: list[str]) -> None:
    metrics = measure(simulate(star(**tables)))
    texts = headline(metrics)
    assert list(texts) == [*NAMES, *further]
    if "slo" in tables:
        assert f"{number(100 * metrics['slo_attainment'].value)} % of requests meet [slo]" in texts["goals"]
        assert f"{number(metrics['goodput_requests_per_s'].value)} requests/s" in texts["goals"]
    for name, unit, is_told in (
        ("cost_per_million_tokens", "cost/million tokens, EUR", "target_per_hour" in tables.get("cost", {})),
        ("energy_j_per_token", "J/token", "profile" in tables),
    ):
        assert (name in metrics) == is_told
        if is_told:
            assert f"{number(metrics[name].value)} {unit} ({interval(metrics[name])})" in texts["cost"]


@pytest.mark.parametrize(("name", "of"), [("throughput", "throughput"), ("tpot_s", "speed"), ("load", "load")])
def test_what_has_no_interval_says_why(name: str, of: str) -> None:
    metrics = measure(simulate(star()))
    endless = {**metrics, **without_intervals({name: metrics[name]}, math.inf)}
    assert "no steady state" in headline(endless)[of]


def test_the_command_prints_five_lines_and_all_metrics_on_demand(say: Say) -> None:
    short, long = (say("simulate", "star", "--set", "workload.requests=12", *more).out for more in ([], ["--all"]))
    assert [line.split()[0] for line in short.splitlines()[1:]] == NAMES

    assert {"idle_gap_s", "p90"} <= set(re.findall(r"\w+", long))
    assert "idle_gap_s" not in short


def test_a_shared_budget_has_a_line_of_its_utility() -> None:
    changes = {"workload.requests": 16, "workload.new_tokens": 40}
    result = specfleet.simulate("goodspeed", changes)
    lines, metrics = headline(result.metrics), result.metrics
    assert lines["utility"] == ", ".join(
        f"{what} {number(metrics[name].value)}"
        for what, name in (("U(x)", "utility"), ("optimum U(x*)", "utility_optimum"), ("gap", "utility_gap"))
    )
