"""Laws of the lengths of texts: whole numbers of tokens within bounds, from uniform numbers.

What a law puts beyond the bounds is left out, as if it was drawn again. One uniform number makes one length, so that
laws of equal draws can be compared.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Law = Literal["even", "lognormal", "gamma"]
LEVELS = 4096  # at which a law is looked at for its mean


def tokens_at(
    uniforms: Floats, law: Law, mean: float, cv: float, low: int, high: int
) -> NDArray[np.int64]:  # fmt: skip
    """Return the lengths for uniform numbers in [0, 1): the law's quantiles between its bounds, rounded.

    `mean`, `cv`: mean in tokens and coefficient of variation of the law before it is cut; of no matter where it is
    even.
    """
    if law == "even":
        return low + np.floor(uniforms * (high + 1 - low)).astype(np.int64)
    below, quantile = _law(law, mean, cv)
    first, last = below(low - 0.5), below(high + 0.5)
    return np.clip(np.rint(quantile(first + uniforms * (last - first))), low, high).astype(np.int64)


def mean_tokens_of(law: Law, mean: float, cv: float, low: int, high: int) -> float:
    """Return the mean of such lengths, as they are drawn: after the cut."""
    if law == "even":
        return (low + high) / 2
    return float(tokens_at((np.arange(LEVELS) + 0.5) / LEVELS, law, mean, cv, low, high).mean())


def lognormal_of(median: float, p90: float) -> tuple[float, float]:
    """Return mean and coefficient of variation of the lognormal law with that median and 90th percentile.

    >>> [round(number, 3) for number in lognormal_of(100.0, 100.0)]
    [100.0, 0.0]
    """
    variance = (np.log(p90 / median) / 1.2815515655446004) ** 2  # of the logarithm; the normal law's 90th percentile
    return float(median * np.exp(variance / 2)), float(np.sqrt(np.expm1(variance)))


def _law(law: Law, mean: float, cv: float) -> tuple[Callable[[float], float], Callable[[Floats], Floats]]:
    """Return a law's distribution function and its inverse."""
    from scipy.special import gammainc, gammaincinv, ndtr, ndtri  # noqa: PLC0415 (who draws no lengths needs no scipy)

    if law == "gamma":
        shape, scale = cv**-2, mean * cv**2
        return lambda x: float(gammainc(shape, x / scale)), lambda levels: gammaincinv(shape, levels) * scale
    spread = np.sqrt(np.log1p(cv**2))
    middle = np.log(mean) - spread**2 / 2
    return (
        lambda x: float(ndtr((np.log(x) - middle) / spread)),
        lambda levels: np.exp(middle + spread * ndtri(levels)),
    )
