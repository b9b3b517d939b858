"""A run goes on until its intervals are narrow enough, or it says which are not and why."""

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.precision import MOST_TIMES, parse_precision, simulate_to, times_longer
from experiments.sweep.sweep import sweep
from fleet.errors import InputError
from fleet.records.metrics.window import Metric
from fleet.scenario.scenario import Workload
from specfleet.cli import main
from tests.helpers.stars import star

EXPONENTIAL = {"spread": {"spread": "exponential"}}


def open_star(load: float, requests: int = 100, **workload: Any) -> Any:
    """M/M/1 at the drafter: a request is a round; verifying takes no time."""
    arrivals = {"process": "poisson", "per_s": load}
    return star(
        profile={"draft": {"base_s": 1.0, **EXPONENTIAL}, "verify": {"base_s": 0.0}},
        drafters={"depth": 1},
        verifiers={"count": 16},
        workload={"requests": requests, "prompt_tokens": 1, "new_tokens": 2, "arrivals": arrivals} | workload,
    )


def half_width(metric: Metric) -> float:
    return (metric.high - metric.low) / 2 / metric.value


def test_a_run_extends_its_beginning_until_metrics_are_precise() -> None:
    reports: list[str] = []
    short = simulate_to(open_star(0.3), {})
    assert simulate_to(open_star(0.3), {}, records=False)[:2] == (None, short.metrics)
    precise = simulate_to(open_star(0.3), {"throughput": 0.05, "wait_s": 0.3}, report=reports.append)
    assert precise.unmet == ()
    assert reports
    assert half_width(precise.metrics["throughput"]) <= 0.05
    assert half_width(precise.metrics["wait_s"]) <= 0.3
    joined_s = [run.frame()[lambda rows: rows.event == "join"].time_s.head(100) for run in (short.run, precise.run)]
    assert list(joined_s[0]) == list(joined_s[1])


def test_it_says_what_was_not_reached_and_why(tmp_path: Path) -> None:
    overloaded = simulate_to(open_star(1.3), {"throughput": 0.01})
    assert "more is offered than is carried" in overloaded.unmet[0]
    (tmp_path / "trace.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{1.2 * n},1,2\n" for n in range(40))
    )
    arrivals = {"process": "trace", "file": str(tmp_path / "trace.csv")}
    traced = star(
        profile={"draft": {"base_s": 1.0, **EXPONENTIAL}, "verify": {"base_s": 0.0}},
        drafters={"depth": 1},
        verifiers={"count": 16},
    )
    traced = msgspec.structs.replace(traced, workload=msgspec.convert({"requests": 40, "arrivals": arrivals}, Workload))
    ended = simulate_to(traced, {"wait_s": 0.001})
    assert "40 requests" in ended.unmet[0]
    limited = simulate_to(open_star(0.3, requests=2), {"throughput": 0.001})
    assert f"{2 * MOST_TIMES} requests" in limited.unmet[0]


@pytest.mark.parametrize("study", ["simulate", "sweep"])
def test_unknown_metrics_are_refused_before_anything_runs(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(*_: object) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr("experiments.precision.simulate", ran)
    vary = ["--vary", "verifiers.count=1,2", "--jobs", "1", "-o", str(tmp_path / "out")] if study == "sweep" else []
    monkeypatch.setattr("sys.argv", ["specfleet", study, "star", *vary, "--precision", "nonsense=2%"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no metric is called 'nonsense'; allowed: throughput, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "why"), [("slo_attainment", "no such metric"), ("requests", "no interval, however long")]
)
def test_a_metric_without_an_interval_does_not_stop_others(name: str, why: str) -> None:
    precise = simulate_to(open_star(0.3), {name: 0.1, "throughput": 0.1})
    (line,) = precise.unmet
    assert line.startswith(f"{name}: ")
    assert why in line
    assert half_width(precise.metrics["throughput"]) <= 0.1


def test_what_is_not_known_yet_reads_as_a_sentence() -> None:
    reports: list[str] = []
    (line,) = simulate_to(open_star(0.3, requests=2), {"throughput": 0.001}, report=reports.append).unmet
    assert reports[0] == "2 requests: throughput has no interval yet (aim: 0.001); next 20"
    assert re.match(r"throughput is known to 0\.\d+ \(aim: 0\.001\): 200 requests are 100 times", line)
    (overloaded,) = simulate_to(open_star(1.3), {"throughput": 0.01}).unmet
    assert overloaded.startswith("throughput has no interval yet (aim: 0.01): more is offered than is carried")


def test_precision_is_read_as_people_write_it() -> None:
    assert parse_precision(["2%", "tpot_p90_s=0.05"]) == {"throughput": 0.02, "tpot_p90_s": 0.05}
    for text in ("0", "200%", "=2%", "two", "", "nan", "throughput="):
        with pytest.raises(InputError, match="--precision"):
            parse_precision([text])


def test_four_times_the_run_halves_the_interval() -> None:
    assert times_longer(Metric(100.0, 90.0, 110.0, "tokens/s"), 0.05) == pytest.approx(4)
    assert times_longer(Metric(1.0, math.nan, math.nan, "s", 7.0), 0.05) == 7


def test_a_precise_sweep_reruns_only_for_another_precision(tmp_path: Path) -> None:
    cells = [({"load": load}, open_star(load)) for load in (0.2, 1.5)]
    reached, missed = sweep(cells, tmp_path, precision={"throughput": 0.1})
    assert half_width(reached.metrics["throughput"]) <= 0.1
    assert reached.unmet == ()
    assert missed.unmet
    assert math.isinf(missed.metrics["throughput"].times_longer)
    assert sweep(cells, tmp_path, precision={"throughput": 0.1})[1].unmet == missed.unmet
    assert sweep(cells[:1], tmp_path, precision={"throughput": 0.05})[0] != reached
