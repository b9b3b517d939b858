"""Loads: laws of lengths and arrivals, published workloads, files of lengths, equal draws beside changes."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.experiments.notes import notes_of
from specfleet.fleet.records.metrics.measure import assess, measure
from specfleet.fleet.scenario.arrivals import Gamma
from specfleet.fleet.scenario.lengths import TEXTS, Between, by_quantiles, mean_tokens
from specfleet.fleet.scenario.reading import make_scenario, read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Workload
from specfleet.fleet.scenario.show import describe_fleet
from specfleet.fleet.scenario.workload import Request, mean_lengths, streams_of
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.sim.run import simulate
from tests.helpers.stars import TABLES, star

GRID = (np.arange(20_000) + 0.5) / 20_000
WIDE = 10**6
LOGNORMAL = {"low": 1, "high": 4096, "mean": 220, "cv": 1.2}


def workload(**changes: Any) -> dict[str, Any]:
    return ({} if "lengths" in changes else {"prompt_tokens": 10, "new_tokens": 20}) | {"requests": 50} | changes


def resolved(seed: int = 1, **changes: Any) -> Fleet:
    return resolve(make_scenario(TABLES | {"seed": seed, "workload": changes}))


def requests_with(seed: int = 1, **changes: Any) -> list[Request]:
    streams = streams_of(resolved(seed, **workload(**changes)))
    return sorted((request for own in streams.values() for request in own), key=lambda request: request.number)


@given(st.floats(200, 5000), st.floats(0.1, 1.2))
def test_a_law_within_wide_bounds_has_its_mean_and_variation(mean: float, cv: float) -> None:
    lengths = Between(1, WIDE, mean, cv).at(GRID)
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    assert lengths.std() / lengths.mean() == pytest.approx(cv, rel=0.05)


@given(st.floats(1, 1000), st.floats(0.05, 10), st.integers(1, 1000), st.integers(1, 1000))
def test_lengths_are_bounded_and_rise_with_the_uniform_number(mean: float, cv: float, one: int, other: int) -> None:
    low, high = min(one, int(mean)), max(other, int(mean) + 1)
    length = Between(low, high, mean, cv)
    drawn = length.at(GRID)
    assert low <= drawn.min()
    assert drawn.max() <= high
    assert np.all(np.diff(drawn) >= 0)
    assert mean_tokens(length) == pytest.approx(drawn.mean(), rel=0.02)


@given(st.floats(50, 500), st.floats(0.1, 0.4), st.integers(2, 20))
def test_draws_of_a_longer_mean_are_the_same_draws_longer(mean: float, cv: float, factor: int) -> None:
    short, long = (Between(1, WIDE, mean * times, cv).at(GRID[:-20]) for times in (1, factor))
    assert np.all(np.abs(long - factor * short) <= 0.51 * (factor + 1) + 1e-3 * long)


@pytest.mark.parametrize(
    ("name", "prompts", "answers"), [("chat", (1730, 5696), (415, 834)), ("summarising", (7059, 12985), (208, 371))]
)
def test_published_medians_and_percentiles_are_those_of_the_draws(name: str, prompts: Any, answers: Any) -> None:
    for law, (median, p90) in ((TEXTS[name].prompts, prompts), (TEXTS[name].answers, answers)):
        assert np.quantile(law.at(GRID), (0.5, 0.9)) == pytest.approx((median, p90), rel=0.01)
        assert f"{median}, {p90}" in TEXTS[name].source


def test_published_means_are_those_of_the_draws() -> None:
    means = mean_lengths(Workload(lengths="sharegpt"))
    assert means == pytest.approx((161.31, 337.99), rel=0.01)


def test_a_published_workload_is_drawn_and_shown() -> None:
    fleet = resolved(requests=5, lengths="chat")
    assert fleet.workload.prompt_tokens == TEXTS["chat"].prompts
    rows = {what: value for _, what, value in describe_fleet(fleet)}
    assert "cv = 1.1" in rows["prompt_tokens"]
    assert rows["lengths"] == "chat"
    assert (fleet.lengths.longest_text, fleet.lengths.longest_answer) == (32768 + 8192, 8192)


def test_shown_lengths_are_those_of_the_requests(tmp_path: Path) -> None:
    def shown(fleet: Fleet) -> dict[str, str]:
        return {what: value for _, what, value in describe_fleet(fleet)}

    cut = resolved(prompt_tokens=LOGNORMAL | {"high": 250})
    assert shown(cut)["prompt_tokens"].endswith(f"is {cut.lengths.mean_prompt:.4g}")
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n5,6\n")
    assert not shown(resolved(lengths=str(tmp_path / "lengths.csv"))).keys() & {"prompt_tokens", "new_tokens"}


@given(st.floats(10, 1e4), st.floats(1.01, 20))
def test_the_lognormal_law_of_two_quantiles_has_them(median: float, ratio: float) -> None:
    law = by_quantiles(median, median * ratio, 10**7)
    spread = np.sqrt(np.log1p(law.cv**2))
    assert law.mean * np.exp(-(spread**2) / 2) == pytest.approx(median)
    assert np.exp(1.2815515655446004 * spread) == pytest.approx(ratio)


def test_draws_of_one_key_leave_other_draws_unchanged() -> None:
    answers = {"low": 1, "high": 900, "mean": 40, "cv": 0.5}
    arrivals = {"process": "gamma", "per_s": 2.0, "burstiness": 0.5}
    base = requests_with(prompt_tokens=LOGNORMAL, new_tokens=answers, arrivals=arrivals)
    others = {
        "prompt": requests_with(prompt_tokens=LOGNORMAL, new_tokens=answers | {"mean": 90}, arrivals=arrivals),
        "answer": requests_with(prompt_tokens=7, new_tokens=answers, arrivals=arrivals | {"burstiness": 9.0}),
        "arrival": requests_with(prompt_tokens=LOGNORMAL | {"cv": 0.1}, new_tokens=9, arrivals=arrivals),
    }
    parts = {"prompt": "prompt_tokens", "answer": "new_tokens", "arrival": "not_before_s"}
    kept = {("prompt", "prompt"), ("prompt", "arrival"), ("answer", "answer"), ("arrival", "arrival")}
    for part, name in parts.items():
        for other, drawn in others.items():
            same = [getattr(one, name) for one in drawn] == [getattr(one, name) for one in base]
            assert same == ((other, part) in kept)
    longer = requests_with(prompt_tokens=LOGNORMAL, new_tokens=answers, arrivals=arrivals, requests=700)
    assert longer[:50] == base
    assert requests_with(2, prompt_tokens=LOGNORMAL, new_tokens=answers, arrivals=arrivals) != base


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_have_their_rate_and_burstiness(burstiness: float) -> None:
    """Of 20,000 gaps mean and variance are known to four standard errors."""
    rng = np.random.default_rng(1)
    times_s = np.array(list(islice(Gamma(5.0, burstiness).openings_s(rng), 20_000)))
    gaps_s = np.diff(times_s, prepend=0.0)
    assert gaps_s.mean() * 5 == pytest.approx(1, rel=4 / np.sqrt(20_000 * burstiness))
    scv, excess = gaps_s.var() / gaps_s.mean() ** 2, 6 / burstiness
    assert scv == pytest.approx(1 / burstiness, rel=4 * np.sqrt((2 + excess + 4 / burstiness) / 20_000))
    faster = list(islice(Gamma(50.0, burstiness).openings_s(np.random.default_rng(1)), 20_000))
    assert faster == pytest.approx(times_s / 10)


def test_gamma_arrivals_have_a_steady_state() -> None:
    served = {"requests": 600, "new_tokens": 6}
    even = {"process": "gamma", "per_s": 0.04, "burstiness": 4.0}
    of_gamma = measure(simulate(star(workload=served | {"arrivals": even})))
    assert not np.isnan(of_gamma["throughput"].low)
    assert of_gamma["offered_requests_per_s"].value == 0.04


def test_bursts_wait_longer_and_overload_is_reported() -> None:
    served = {"requests": 300, "new_tokens": 6}
    p99_s = []
    for burstiness in (0.2, 1.0, 20.0):
        arrivals = {"process": "gamma", "per_s": 0.05, "burstiness": burstiness}
        p99_s.append(measure(simulate(star(workload=served | {"arrivals": arrivals})))["ttft_s"].p99.value)
    assert p99_s[0] > p99_s[1] > p99_s[2]
    _, overload = assess(simulate(star(workload=served | {"arrivals": {"process": "gamma", "per_s": 5.0}})))
    assert overload is not None


def test_a_written_scenario_keeps_its_loads_goals_and_prices(tmp_path: Path) -> None:
    for load in ({"lengths": "chat"}, {"prompt_tokens": LOGNORMAL, "arrivals": {"process": "gamma", "per_s": 2.0}}):
        prices = {"target_per_hour": 1.0, "drafter_per_hour": 0.5, "unit": "EUR"}
        scenario = make_scenario({"workload": load, "slo": {"tpot_s": 0.04}, "cost": prices})
        (tmp_path / "again.toml").write_text("\n".join(scenario_lines(scenario, "")))
        assert read_scenario(tmp_path / "again.toml", base=Path()) == scenario


def test_what_is_published_of_a_workload_stands_beside_its_results() -> None:
    (note,) = notes_of(make_scenario(TABLES | {"workload": {"lengths": "sharegpt"}}))
    assert "published: Kwon et al. 2023" in note
    assert "assumed: lognormal" in note
