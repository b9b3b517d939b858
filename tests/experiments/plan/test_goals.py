"""Goals and prices as users write them."""

import pytest

from specfleet.experiments.plan.goals import in_words, parse_least, parse_slo
from specfleet.experiments.plan.prices import OF_COST, read_prices
from specfleet.experiments.plan.texts import read_budget
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.cost import Cost, per_million_tokens


def test_a_goal_names_a_metric_and_its_limit() -> None:
    goals = parse_slo(["tpot_p99=40ms,ttft_p90=1s", "e2el_mean=2min"])
    assert [(goal.metric, goal.limit, goal.sense) for goal in goals] == [
        ("tpot_p99_s", 0.04, "at most"),
        ("ttft_p90_s", 1.0, "at most"),
        ("latency_s", 120.0, "at most"),
    ]


def test_a_users_token_rate_limits_the_token_time() -> None:
    mean, slowest, total = parse_least(["tokens_per_s_per_user=50, tokens_per_s_per_user_p99=40/s", "tokens_per_s=600"])
    assert (mean.metric, mean.limit) == ("tpot_s", 0.02)
    assert (slowest.metric, slowest.limit) == ("tpot_p99_s", 0.025)
    assert (slowest.unit, slowest.shown(0.02)) == ("tokens/s a user", 50)
    assert (total.metric, total.limit, total.sense) == ("throughput", 600, "at least")


def test_goals_are_said_in_words() -> None:
    slo, least = parse_slo(["tpot_p99=30 ms,e2el_mean=2min"]), parse_least(["tokens_per_s_per_user_p90=40/s"])
    words = "99% of requests get a token every 30 ms or faster", "requests end within 2 min on average"
    assert tuple(in_words(goal.text) for goal in (*slo, *least)) == (*words, "90% of requests get 40 tokens/s or more")
    assert in_words(f"a, which misses {slo[0].text} by 3%; b") == f"a, which misses by 3% that {words[0]}; b"


def test_a_miss_is_a_share_of_the_limit() -> None:
    slo, least = parse_slo(["tpot_p99=40ms"])[0], parse_least(["tokens_per_s=600"])[0]
    assert (slo.miss(0.05), slo.miss(0.02)) == (pytest.approx(0.25), pytest.approx(-0.5))
    assert (least.miss(500), least.miss(1200)) == (pytest.approx(0.2), pytest.approx(-0.5))


PLACES = ["a@h100", "a@4xl4:fp8", "b@l4", "b@rtx-4090"]


def test_prices_count_all_devices_of_each_place() -> None:
    prices = {"a@h100": 3.0, "a@4xl4:fp8": 2.0, "b@l4": 0.5, "b@rtx-4090": 0.4}
    assert read_prices(["h100=3,l4=0.5,rtx-4090=0.4"], PLACES) == (prices, OF_COST)
    assert read_prices(["H100=3"], ["a@2xH100"]) == ({"a@2xH100": 6.0}, OF_COST)
    assert read_budget("8xH100,2xL4") == {"h100": 8, "l4": 2}
    four = ["a@4xh100", "b@l4"]
    assert read_prices(["h100=700W,l4=72W"], four) == ({"a@4xh100": 2800.0, "b@l4": 72.0}, "Wh")
    assert read_prices(["l4=0"], four) == ({"a@4xh100": 12.0, "b@l4": 0.0}, "$ (assumed for h100)")  # a spare card
    assert Cost(12.0, 0.5, "cost").per_hour(drafters=2, targets=3) == 37.0
    assert per_million_tokens(36.0, 1000.0) == pytest.approx(10.0)


def test_a_price_is_needed_only_to_choose_among_kinds_of_devices() -> None:
    per_hour, unit = read_prices([], ["a@mine.toml", "a@2xmine.toml"])
    assert per_hour == {"a@mine.toml": 1.0, "a@2xmine.toml": 2.0}
    assert unit == "device-hours (mine.toml has no price)"
    several = ["a@mine.toml", "b@h100"]
    assert read_prices([], several, decide=False) == (dict.fromkeys(several, 1.0), unit)
    with pytest.raises(InputError, match=r"mine\.toml has no price"):
        read_prices([], several)


WRONG_GOALS = {
    "tpot=40ms": "no time of requests is called 'tpot'",
    "itl_p99=40ms": "allowed: ttft, tpot, latency",
    "tpot_p99": "write NAME=VALUE",
    "tpot_p99=40kg": "allowed: seconds, or ns",
    "tpot_p99=9": "a time needs its unit; write tpot_p99=9ms, or tpot_p99=9s",
    "tpot_p99=-1ms": "needs a number above 0",
    "tpot_p99=1e9": "below 1e",
    "tpot_p99=fast": "could not convert",
}
WRONG_PRICES = {
    "a100=2": "no device here is called 'a100'; allowed: h100, l4, rtx-4090",
    "h100": "write DEVICE=COST",
    "h100=cheap": "write DEVICE=COST",
    "h100=1,h100=2": "h100=2: h100 stands twice; give it once",
    "h100=-1": "write DEVICE=COST",
    "h100=700W,l4=72W": "rtx-4090 has no price; add --cost rtx-4090=COST",
    "h100=700W": "l4 has no price; add --cost l4=COST,rtx-4090=COST",
    "h100=700W,l4=0.5": "some prices are in watts",
}


@pytest.mark.parametrize("text", WRONG_GOALS | WRONG_PRICES)
def test_what_is_neither_goal_nor_price_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=(WRONG_GOALS | WRONG_PRICES)[text]):
        parse_slo([text]) if text in WRONG_GOALS else read_prices([text], PLACES)
