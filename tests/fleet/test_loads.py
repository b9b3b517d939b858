"""Loads: laws of lengths and arrivals, published workloads, files that are drawn from, equal draws beside changes."""

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.notes import notes_of
from fleet.chance.lengths import lognormal_of
from fleet.errors import InputError
from fleet.records.metrics import assess, measure
from fleet.scenario.arrivals import Gamma, Ramp
from fleet.scenario.lengths import TEXTS, Between
from fleet.scenario.reading import make_scenario, read_scenario
from fleet.scenario.scenario import Workload
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet
from fleet.scenario.show import describe_fleet
from fleet.scenario.workload import Request, longest_of, mean_lengths, streams_of
from fleet.scenario.writing import scenario_lines
from sim.fast.choice import has_numba
from sim.fast.plain import is_plain_star
from sim.run import simulate
from tests.helpers.stars import TABLES, repeatable, star

GRID = (np.arange(20_000) + 0.5) / 20_000
WIDE = 10**6
laws = st.sampled_from(["lognormal", "gamma"])
LOGNORMAL = {"low": 1, "high": 4096, "law": "lognormal", "mean": 220, "cv": 1.2}


def workload(**changes: Any) -> dict[str, Any]:
    return ({} if "lengths" in changes else {"prompt_tokens": 10, "new_tokens": 20}) | {"requests": 50} | changes


def settled(seed: int = 1, **changes: Any) -> Fleet:
    return settle(make_scenario(TABLES | {"seed": seed, "workload": changes}))


def requests_with(seed: int = 1, **changes: Any) -> list[Request]:
    streams = streams_of(settled(seed, **workload(**changes)))
    return sorted((request for own in streams.values() for request in own), key=lambda request: request.number)


@repeatable
@given(laws, st.floats(200, 5000), st.floats(0.1, 1.2))
def test_a_law_within_wide_bounds_has_the_mean_and_the_variation_that_it_names(
    law: Any, mean: float, cv: float
) -> None:
    lengths = Between(1, WIDE, law, mean, cv).at(GRID)
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    assert lengths.std() / lengths.mean() == pytest.approx(cv, rel=0.05)


@repeatable
@given(laws, st.floats(1, 1000), st.floats(0.05, 10), st.integers(1, 1000), st.integers(1, 1000))
def test_lengths_are_within_their_bounds_and_rise_with_the_uniform_number(
    law: Any, mean: float, cv: float, one: int, other: int
) -> None:
    low, high = min(one, int(mean)), max(other, int(mean) + 1)
    length = Between(low, high, law, mean, cv)
    drawn = length.at(GRID)
    assert low <= drawn.min()
    assert drawn.max() <= high
    assert np.all(np.diff(drawn) >= 0)
    assert length.drawn_mean == pytest.approx(drawn.mean(), rel=0.02)


@repeatable
@given(laws, st.floats(50, 500), st.floats(0.1, 0.4), st.integers(2, 20))
def test_draws_of_a_longer_mean_are_the_same_draws_longer(law: Any, mean: float, cv: float, factor: int) -> None:
    short, long = (Between(1, WIDE, law, mean * times, cv).at(GRID[:-20]) for times in (1, factor))
    assert np.all(np.abs(long - factor * short) <= 0.51 * (factor + 1) + 1e-3 * long)


@pytest.mark.parametrize(
    ("name", "prompts", "answers"), [("chat", (1730, 5696), (415, 834)), ("summarising", (7059, 12985), (208, 371))]
)
def test_published_medians_and_percentiles_are_those_of_the_draws(name: str, prompts: Any, answers: Any) -> None:
    for law, (median, p90) in ((TEXTS[name].prompts, prompts), (TEXTS[name].answers, answers)):
        assert np.quantile(law.at(GRID), (0.5, 0.9)) == pytest.approx((median, p90), rel=0.01)
        assert f"{median}, {p90}" in TEXTS[name].source


def test_published_means_are_those_of_the_draws() -> None:
    means = mean_lengths(Workload(texts="sharegpt"))
    assert means == pytest.approx((161.31, 337.99), rel=0.01)


def test_a_published_workload_is_drawn_shown_and_its_source_told() -> None:
    fleet = settled(requests=5, texts="chat")
    assert fleet.workload.prompt_tokens == TEXTS["chat"].prompts
    rows = {what: value for _, what, value in describe_fleet(fleet)}
    assert "lognormal with cv 1.1" in rows["lengths"]
    assert rows["texts like chat"] == TEXTS["chat"].source
    assert longest_of(fleet.workload) == (32768 + 8192, 8192)


@repeatable
@given(st.floats(10, 1e4), st.floats(1.01, 20))
def test_the_lognormal_law_of_two_quantiles_has_them(median: float, ratio: float) -> None:
    mean, cv = lognormal_of(median, median * ratio)
    spread = np.sqrt(np.log1p(cv**2))
    assert mean * np.exp(-(spread**2) / 2) == pytest.approx(median)
    assert np.exp(1.2815515655446004 * spread) == pytest.approx(ratio)


def test_draws_of_one_key_leave_those_of_others_and_of_earlier_requests_as_they_are() -> None:
    gamma = {"low": 1, "high": 900, "law": "gamma", "mean": 40, "cv": 0.5}
    arrivals = {"process": "gamma", "per_s": 2.0, "burstiness": 0.5}
    base = requests_with(prompt_tokens=LOGNORMAL, new_tokens=gamma, arrivals=arrivals)
    others = {
        "prompt": requests_with(prompt_tokens=LOGNORMAL, new_tokens=gamma | {"mean": 90}, arrivals=arrivals),
        "answer": requests_with(prompt_tokens=7, new_tokens=gamma, arrivals=arrivals | {"burstiness": 9.0}),
        "arrival": requests_with(prompt_tokens=LOGNORMAL | {"cv": 0.1}, new_tokens=9, arrivals=arrivals),
    }
    parts = {"prompt": "prompt_tokens", "answer": "new_tokens", "arrival": "not_before_s"}
    kept = {("prompt", "prompt"), ("prompt", "arrival"), ("answer", "answer"), ("arrival", "arrival")}
    for part, name in parts.items():
        for other, drawn in others.items():
            same = [getattr(one, name) for one in drawn] == [getattr(one, name) for one in base]
            assert same == ((other, part) in kept)
    longer = requests_with(prompt_tokens=LOGNORMAL, new_tokens=gamma, arrivals=arrivals, requests=700)
    assert longer[:50] == base
    assert requests_with(2, prompt_tokens=LOGNORMAL, new_tokens=gamma, arrivals=arrivals) != base


def test_rows_of_a_file_are_drawn_together_and_as_many_as_asked(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("num_prefill_tokens,num_decode_tokens\n374,44\n396,109\n20,7\n")
    drawn = requests_with(requests=3000, lengths=str(file), lengths_drawn=True)
    pairs = [(request.prompt_tokens, request.new_tokens) for request in drawn]
    assert len(pairs) == 3000
    for pair in ((374, 44), (396, 109), (20, 7)):
        assert pairs.count(pair) == pytest.approx(1000, abs=100)  # four standard errors
    assert requests_with(requests=30, lengths=str(file), lengths_drawn=True) == drawn[:30]
    told = Workload(requests=1, lengths=str(file), lengths_drawn=True)
    assert mean_lengths(told) == pytest.approx((790 / 3, 160 / 3))
    assert longest_of(told) == (505, 109)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_come_at_their_rate_as_unevenly_as_asked(burstiness: float) -> None:
    """Of 20,000 gaps mean and variance are known to four standard errors."""
    rng = np.random.default_rng(1)
    times_s = np.array(list(islice(Gamma(5.0, burstiness).openings_s(rng), 20_000)))
    gaps_s = np.diff(times_s, prepend=0.0)
    assert gaps_s.mean() * 5 == pytest.approx(1, rel=4 / np.sqrt(20_000 * burstiness))
    scv, excess = gaps_s.var() / gaps_s.mean() ** 2, 6 / burstiness
    assert scv == pytest.approx(1 / burstiness, rel=4 * np.sqrt((2 + excess + 4 / burstiness) / 20_000))
    faster = list(islice(Gamma(50.0, burstiness).openings_s(np.random.default_rng(1)), 20_000))
    assert faster == pytest.approx(times_s / 10)


@st.composite
def ramps(draw: st.DrawFn) -> Ramp:
    gaps_s = draw(st.lists(st.floats(0.5, 100), min_size=1, max_size=5))
    rates = draw(st.lists(st.floats(0.5, 50) | st.just(0.0), min_size=len(gaps_s) + 1, max_size=len(gaps_s) + 1))
    rates[draw(st.integers(0, len(gaps_s)))] = draw(st.floats(0.5, 50))
    return Ramp((0.0, *np.cumsum(gaps_s).tolist()), tuple(rates), draw(st.booleans()))


def expected(ramp: Ramp, until_s: float) -> float:
    """Arrivals that are expected until a time, by the areas below the curve."""

    def within(end_s: float) -> float:
        total = 0.0
        for (at, rate), (later, after) in pairwise(zip(ramp.at_s, ramp.per_s, strict=True)):
            x = min(max(end_s - at, 0.0), later - at)
            total += rate * x + (after - rate) / (later - at) * x**2 / 2
        return total

    day_s = ramp.at_s[-1]
    if ramp.repeat:
        return float(until_s // day_s * within(day_s) + within(until_s % day_s))
    return within(until_s) + max(until_s - day_s, 0.0) * ramp.per_s[-1]


@repeatable
@given(ramps(), st.floats(1e-3, 3))
def test_a_ramp_expects_by_each_time_what_lies_below_its_curve(ramp: Ramp, share: float) -> None:
    count = share * expected(Ramp(ramp.at_s, ramp.per_s), ramp.at_s[-1])
    at_s = ramp.until_s(count)
    if np.isinf(at_s):
        assert share >= 1 - 1e-9
        assert not ramp.repeat
        assert ramp.per_s[-1] == 0
    else:
        assert min(abs(expected(ramp, at_s + around) - count) for around in (-1e-9, 0.0, 1e-9)) <= 1e-6 * count + 1e-6


def test_a_ramp_of_one_rate_is_poisson() -> None:
    even, steady = (each.openings_s(np.random.default_rng(3)) for each in (Ramp((0.0,), (4.0,)), Gamma(4.0)))
    assert list(islice(even, 99)) == pytest.approx(list(islice(steady, 99)))


def test_a_day_has_its_rush_hours_every_day() -> None:
    day = {"process": "ramp", "at_s": [0, 30, 60], "per_s": [0, 20, 0], "repeat": True}
    times_s = np.array([one.not_before_s for one in requests_with(requests=3000, arrivals=day)])
    assert times_s[-1] == pytest.approx(300, rel=0.08)  # 600 a day
    rush = np.abs(times_s % 60 - 30) < 15
    assert rush.mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 3000))


def test_a_ramp_that_ends_has_no_more_arrivals() -> None:
    ends = {"process": "ramp", "at_s": [0, 10], "per_s": [4, 0]}
    with pytest.raises(InputError, match=r"workload.arrivals has \d+ arrivals only"):
        requests_with(requests=200, arrivals=ends)


def test_a_ramp_has_no_steady_state_and_gamma_arrivals_have_one() -> None:
    served = {"requests": 600, "new_tokens": 6}
    ramp = {"process": "ramp", "at_s": [0, 2000], "per_s": [0.02, 0.06]}
    of_ramp = measure(simulate(star(workload=served | {"arrivals": ramp})))
    assert all(np.isnan(metric.low) and metric.times_longer == 1 for metric in of_ramp.values())
    even = {"process": "gamma", "per_s": 0.04, "burstiness": 4.0}
    of_gamma = measure(simulate(star(workload=served | {"arrivals": even})))
    assert not np.isnan(of_gamma["throughput"].low)
    assert of_gamma["offered_requests_per_s"].value == 0.04


def test_bursts_wait_longer_than_even_arrivals_and_too_many_of_either_are_told() -> None:
    served = {"requests": 300, "new_tokens": 6}
    p99_s = []
    for burstiness in (0.2, 1.0, 20.0):
        arrivals = {"process": "gamma", "per_s": 0.05, "burstiness": burstiness}
        p99_s.append(measure(simulate(star(workload=served | {"arrivals": arrivals})))["ttft_p99_s"].value)
    assert p99_s[0] > p99_s[1] > p99_s[2]
    _, overload = assess(simulate(star(workload=served | {"arrivals": {"process": "gamma", "per_s": 5.0}})))
    assert overload is not None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"prompt_tokens": {"low": 1, "high": 9, "mean": 4}},
            "law = 'even' has no mean; allowed with it: lognormal, gamma",
        ),
        ({"prompt_tokens": {"low": 1, "high": 9, "law": "gamma"}}, "law = 'gamma' needs mean and cv"),
        (
            {"prompt_tokens": {"low": 1, "high": 9, "law": "gamma", "mean": 20, "cv": 1}},
            "mean = 20 is not between low = 1",
        ),
        ({"prompt_tokens": {"low": 1, "high": 9, "law": "normal"}}, "allowed: even, lognormal, gamma"),
        ({"texts": "sharegtp"}, "workload.texts = 'sharegtp' .*; allowed: sharegpt, chat, summarising"),
        ({"lengths_drawn": True}, "workload.lengths_drawn draws rows of a file, and there is none"),
        ({"arrivals": {"process": "gamma", "per_s": 1, "burstiness": 0}}, "burstiness = 0"),
        ({"arrivals": {"process": "ramp", "at_s": [0, 1], "per_s": [1]}}, "per_s"),
        ({"arrivals": {"process": "ramp", "at_s": [1, 2], "per_s": [1, 1]}}, "begins with 0 and rises"),
        ({"arrivals": {"process": "ramp", "at_s": [0, 2], "per_s": [0, 0]}}, "nobody comes"),
        ({"arrivals": {"process": "ramp", "at_s": [0], "per_s": [1], "repeat": True}}, "needs two times at least"),
    ],
)
def test_loads_that_say_nothing_are_refused_in_a_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        star(workload=changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["prompt_tokens", "new_tokens", "lengths", "conversations"])
def test_a_published_workload_has_the_lengths_alone(key: str) -> None:
    value: Any = 11 if key.endswith("tokens") else "file"
    with pytest.raises(InputError, match=f"workload.texts = 'chat' has the lengths; leave workload.{key} out"):
        star(workload={"prompt_tokens": 192, "new_tokens": 96, "texts": "chat", key: value})


def test_the_compiled_loop_knows_all_loads() -> None:
    arrivals: list[dict[str, Any]] = [
        {"process": "gamma", "per_s": 0.05, "burstiness": 0.3},
        {"process": "ramp", "at_s": [0, 100], "per_s": [0.01, 0.1], "repeat": True},
    ]
    for each in arrivals:
        scenario = star(workload=workload(prompt_tokens=LOGNORMAL, arrivals=each, requests=20))
        assert is_plain_star(settle(scenario))
        if has_numba():
            assert simulate(scenario, path="fast").digest() == simulate(scenario, path="simpy").digest()


def test_a_written_scenario_keeps_its_loads_goals_and_prices(tmp_path: Path) -> None:
    for load in ({"texts": "chat"}, {"prompt_tokens": LOGNORMAL, "arrivals": {"process": "gamma", "per_s": 2.0}}):
        prices = {"target_per_hour": 1.0, "drafter_per_hour": 0.5, "unit": "EUR"}
        scenario = make_scenario({"workload": load, "slo": {"tpot_s": 0.04}, "cost": prices})
        (tmp_path / "again.toml").write_text("\n".join(scenario_lines(scenario, "")))
        assert read_scenario(tmp_path / "again.toml", base=Path()) == scenario


def test_what_is_published_of_a_workload_stands_beside_its_results() -> None:
    (note,) = notes_of(make_scenario(TABLES | {"workload": {"texts": "sharegpt"}}))
    assert "published: Kwon et al. 2023" in note
    assert "assumed: lognormal" in note
