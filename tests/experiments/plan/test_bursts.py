"""Plans for requests that come in bursts."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import specfleet
from experiments.plan.ask import make_plan
from experiments.plan.question import share_of
from fleet.errors import InputError
from fleet.scenario.arrivals import Gamma, Poisson, Trace
from tests.helpers.questions import question_of

PAIR: dict[str, Any] = {"target": "llama-3.1-8b@h100", "draft": "llama-3.2-1b@l4", "link_s": 0.002, "acceptance": 0.8}
SMALL = {"workload.new_tokens": 48, "workload.prompt_tokens": 64}
RANGES = ["drafters.count=1", "verifiers.count=1:4", "drafters.depth=4"]


@pytest.mark.parametrize("burstiness", [0.1, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_share_of_arrivals_is_as_bursty_as_thinning(burstiness: float, share: float) -> None:
    rng, arrivals = np.random.default_rng(0), Gamma(3.0, burstiness)
    times_s = np.cumsum(rng.gamma(burstiness, 1 / (3.0 * burstiness), 200_000))
    gaps_s = np.diff(times_s[rng.random(len(times_s)) < share])
    thinned = share_of(arrivals, share)
    assert isinstance(thinned, Gamma)
    assert 1 / gaps_s.mean() == pytest.approx(thinned.per_s, rel=0.03)
    assert gaps_s.var() / gaps_s.mean() ** 2 == pytest.approx(1 / thinned.burstiness, rel=0.08)


def test_a_share_of_poisson_arrivals_is_poisson() -> None:
    assert share_of(Poisson(4.0), 0.25) == Poisson(1.0)


def test_bursts_make_users_wait_longer() -> None:
    even, bursts = (
        specfleet.plan(
            "star", SMALL, arrivals_per_s=50.0, burstiness=burstiness, slo="ttft_p99=100s",
            vary=["drafters.count=1", "verifiers.count=2", "drafters.depth=4"], apart=True, jobs=1, **PAIR,
        )
        for burstiness in (None, 0.05)
    )  # fmt: skip
    assert "50 requests/s (burstiness 0.05)" in bursts.question
    assert "burstiness" not in even.question
    assert bursts.metrics["ttft_s"].value > 1.4 * even.metrics["ttft_s"].value
    assert bursts.scenario is not None
    assert bursts.scenario.workload.arrivals == Gamma(50.0, 0.05)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"burstiness": 0.5}, "needs a rate of arrivals"),
        ({"arrivals_per_s": 3.0, "burstiness": 0.0}, "needs a number above 0"),
        ({"arrivals_per_s": 3.0, "burstiness": float("nan")}, "needs a number above 0"),
    ],
)
def test_what_is_no_burstiness_is_refused_in_one_line(keys: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        specfleet.plan("star", SMALL, vary=RANGES, jobs=1, **keys)
    assert "\n" not in str(refused.value)


def test_a_plan_of_a_trace_is_refused() -> None:
    question = question_of(1)
    (pair,) = question.pairs
    base = replace(pair.base, workload=replace(pair.base.workload, arrivals=Trace("trace.csv")))
    with pytest.raises(InputError, match="knows poisson and gamma arrivals"):
        make_plan(replace(question, pairs=(replace(pair, base=base),)))
