"""Fits of step times: they hold where a few of the measured times are wrong."""

import numpy as np
import pytest
from numpy.typing import NDArray

from specfleet.calibration.fits import fit_relative


@pytest.mark.parametrize("wrong_s", [2e-5, 0.0, 3.0])
def test_few_wrong_times_do_not_move_a_fit(wrong_s: float) -> None:
    # A server's count of rounds cuts some rounds in two, so a few times are nearly 0.
    rng = np.random.default_rng(1)
    rows = rng.choice([1.0, 4.0, 16.0], 3000)
    design = np.stack([np.ones_like(rows), rows - 1, (rows > 1).astype(float)], axis=1)
    law_s: NDArray[np.float64] = np.array([0.002, 0.003, 0.001])
    times_s = design @ law_s * rng.lognormal(0.0, 0.1, len(rows))
    wrong = rng.random(len(rows)) < 0.02
    _, ratios = fit_relative(design, np.where(wrong, wrong_s, times_s))
    fitted_s = times_s[~wrong] / ratios[~wrong]
    assert fitted_s == pytest.approx(design[~wrong] @ law_s, rel=0.05)
