"""Plans for requests that come in bursts."""

import numpy as np
import pytest

from experiments.plan.question import share_of
from fleet.scenario.arrivals import Gamma, Poisson


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
