"""DSDE: the best speculation length of an iteration, on texts that are known, and acceptance at temperature 1."""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from specfleet.experiments.reproduce import dsde, dsde_figures
from specfleet.experiments.reproduce.dsde_figures import best_lengths
from specfleet.fleet.acceptance.signals import Regional
from specfleet.fleet.policies.outcome import Token


@pytest.mark.parametrize(
    ("ratios", "lengths"), [([1.0, 1.0, 0.0, 0.0], [2, 0, 2, 0]), ([1.0], [10, 10, 10]), ([0.0], [0, 0, 0])]
)
def test_the_best_length_is_what_is_accepted_before_a_mismatch(
    ratios: list[float], lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def known(_model: Regional, _rng: Any) -> Iterator[Token]:
        return map(Token, cycle(ratios))

    monkeypatch.setattr(dsde_figures, "synthetic", known)
    assert best_lengths(Regional(0.5), tokens=60)[: len(lengths)].tolist() == lengths


def test_sampled_acceptance_has_static_opts_share_of_plain_decoding() -> None:
    assert dsde.sampled_share(0.0) == 1.0
    assert dsde.llama_time() < dsde.llama_time(dsde.sampled_share(1.0)) == pytest.approx(18.02 / 38.47)
