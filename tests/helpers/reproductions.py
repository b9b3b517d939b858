"""Reproductions with less text and fewer seeds than those of `specfleet reproduce`; StarSD's and AMUSD's on demand.

Tests of their rows do not depend on the amount of simulation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, amusd, batch_matches, batch_model, dsde, goodspeed, starsd
from specfleet.experiments.reproduce.rows import Inputs, Reproduction

LESS = {
    batch_model: {"PROMPTS": 20, "SEEDS": 1, "TURNS": 40, "ROUNDS_OF_FIT": 2},
    batch_matches: {"REQUESTS": 6, "NEW_TOKENS": 12},
    dsde: {
        "NEW_TOKENS": 48,
        "SEEDS": 1,
        "correlations": partial(dsde.correlations, tokens=6_000),
        "wvir_correlation": partial(dsde.wvir_correlation, tokens=6_000),
        "run_policy": partial(dsde.run_policy, requests=4),
    },
    goodspeed: {"ITERATIONS": 60, "SEEDS": 1},
}


EVEN_LESS = {starsd: {"NEW_TOKENS": 600}, amusd: {"TOKENS": 1000}}  # too short for their numbers to be right


@contextmanager
def smaller(right: bool = True) -> Iterator[None]:
    """Make reproductions smaller, and drop their caches; `right`: StarSD's numbers stay."""
    with pytest.MonkeyPatch.context() as patch:
        for module, sizes in (LESS if right else LESS | EVEN_LESS).items():
            for name, size in sizes.items():
                patch.setattr(module, name, size)
        reproduced.cache_clear()
        forget_signals()
        yield
    reproduced.cache_clear()
    forget_signals()


def forget_signals() -> None:
    """Drop the fits to a paper's numbers."""
    for kept in (dsde.signals, dsde.static_opt, dsde.confident_entropy, batch_model.fitted):
        kept.cache_clear()


@cache
def reproduced(name: str) -> Reproduction:
    """A reproduction, computed once."""
    return REPRODUCTIONS[name](Inputs())
