"""The bench of adaptive verification: its step times give the plain rows again."""

import numpy as np
import pytest

from bench.methods_adaptive import ADAPTIVE, fitted_curve, profile_of, tokens_per_s
from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.policies.adaptive import Adaptive
from specfleet.fleet.policies.allocate import Fixed

FEW = {name: ADAPTIVE["load"][name][:2] for name in ("in_flight", "plain")}
TABLE = ADAPTIVE["load"] | FEW | {"new_tokens": 64, "prompt_tokens": 20}


def test_the_curve_gives_the_plain_rows_again() -> None:
    profile = profile_of(TABLE, fitted_curve(TABLE))
    plain = [tokens_per_s(TABLE, profile, rows, None, Geometric(0.5))[0] for rows in TABLE["in_flight"]]
    assert plain == pytest.approx(TABLE["plain"], rel=0.02)


def test_chosen_drafts_win_where_tokens_are_dear() -> None:
    profile = profile_of(TABLE, np.array([0.005, 0.009]))
    chosen, fixed = (tokens_per_s(TABLE, profile, 8, rule, Geometric(0.6)) for rule in (Adaptive(7), Fixed(7)))
    assert chosen[0] > 1.1 * fixed[0]
    assert chosen[1] < fixed[1]
