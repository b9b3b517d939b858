"""Text lengths: whole numbers of tokens within bounds, from uniform numbers.

The lognormal law is truncated at the bounds. One uniform number gives one length, so laws can be compared at equal
draws.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVELS = 4096  # points at which a law is evaluated for its mean


def lognormal_at(uniforms: Floats, mean: float, cv: float, low: int, high: int) -> NDArray[np.int64]:
    """Return lengths for uniform numbers in [0, 1): rounded quantiles of the truncated law.

    - `mean`, `cv`: mean in tokens and coefficient of variation before truncation.
    """
    below, quantile = _law(mean, cv)
    first, last = below(low - 0.5), below(high + 0.5)
    return np.clip(np.rint(quantile(first + uniforms * (last - first))), low, high).astype(np.int64)


def mean_tokens_of(mean: float, cv: float, low: int, high: int) -> float:
    """Return the mean length after truncation."""
    return float(lognormal_at((np.arange(LEVELS) + 0.5) / LEVELS, mean, cv, low, high).mean())


def lognormal_of(median: float, p90: float) -> tuple[float, float]:
    """Return mean and coefficient of variation of the lognormal law with that median and 90th percentile.

    >>> [round(number, 3) for number in lognormal_of(100.0, 100.0)]
    [100.0, 0.0]
    """
    variance = (np.log(p90 / median) / 1.2815515655446004) ** 2  # of the logarithm; the normal law's 90th percentile
    return float(median * np.exp(variance / 2)), float(np.sqrt(np.expm1(variance)))


def _law(mean: float, cv: float) -> tuple[Callable[[float], float], Callable[[Floats], Floats]]:
    """Return the law's distribution function and its inverse."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 (without drawn lengths scipy is not needed)

    spread = np.sqrt(np.log1p(cv**2))
    middle = np.log(mean) - spread**2 / 2
    return (
        lambda x: float(ndtr((np.log(x) - middle) / spread)),
        lambda levels: np.exp(middle + spread * ndtri(levels)),
    )
