"""Suffix decoding: counts are those of the texts, drafts are the likeliest continuation, memory is bounded."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specfleet.engine.decoding import suffix
from specfleet.engine.decoding.grow import Drafts
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.rules import NEEDS_Q, Rule
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.suffix import Counts, SuffixDrafter
from specfleet.engine.decoding.verify import Target
from specfleet.engine.node.drafts import drafts_of
from specfleet.engine.node.serving import find
from tests.helpers.exactly import distance_of_a_round, distribution

TEXTS = st.lists(st.lists(st.integers(0, 3), max_size=40), max_size=4)


def strings_of(text: list[int], depth: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(text[i:j]) for i in range(len(text)) for j in range(i + 1, min(i + depth, len(text)) + 1))


def counted(node: Counts, before: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    own = {before: node.times} if before else {}
    for token, after in node.next.items():
        own |= counted(after, (*before, token))
    return own


@given(TEXTS, st.integers(1, 6), st.data())
def test_counts_are_those_of_every_string(texts: list[list[int]], depth: int, data: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix, "DEPTH", depth)
        counts = Counts()
        for text in texts:
            known = data.draw(st.integers(0, len(text)))
            counts.add(text[:known])
            counts.add(text, known)
        assert counted(counts) == sum((strings_of(text, depth) for text in texts), Counter())
        for number, text in enumerate(texts, 1):
            counts.add(text, times=-1)
            assert counted(counts) == sum((strings_of(text, depth) for text in texts[number:]), Counter())


def drafted(drafter: SuffixDrafter, tag: int, most: int) -> list[int]:
    drafts = drafter.draft([tag], [most])
    return drafts.tokens[0, : drafts.counts[0]].tolist()


def test_a_draft_is_the_likeliest_and_as_long_as_its_match() -> None:
    drafter = SuffixDrafter(torch.device("cpu"))
    drafter.open(0, [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 7, 6, 1, 2, 3, 4, 7, 9, 1, 2, 3])
    assert drafted(drafter, 0, 8) == [4, 7, 6], "three tokens for three matched ones; 7 in two of three cases"
    drafter.open(1, [8, 9, 10])
    assert drafted(drafter, 1, 8) == []


class FoundDrafts:
    """What is found for one row, as a drafter."""

    def __init__(self, target: Target, rule: str) -> None:
        self.target, self.finder, self.rule = target, SuffixDrafter(torch.device("cpu")), rule

    def open(self, tag: int, prefix: list[int], sampling: Sampling) -> None:
        self.finder.open(tag, prefix, sampling)

    def read(self, tag: int, hidden: torch.Tensor) -> None:
        pass

    def draft(self, tags: list[int], depths: list[int]) -> Drafts:
        found = find(self.finder, tags[0], self.target.committed(tags[0]), depths[0], self.rule)
        return drafts_of([found], torch.device("cpu"))


@pytest.mark.parametrize("rule", ["rejection", "without-replacement", "top-k", "match"])
def test_found_rounds_are_the_targets_own_over_all_branches(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule
) -> None:
    """Beside drawn drafts, as which they are verified."""
    target = Target(load_model(str(tiny / "target"), "target", "float64", "cpu"), rule)
    sampling, prompt = Sampling(4.0, top_k=3), [3, 1, 4, 1, 5]
    likely = np.argsort(distribution(target.model, prompt, sampling))[-3:].tolist()  # what the target may say next
    text = [*prompt, likely[0], 9, *prompt]
    apart, drafted = distance_of_a_round(
        monkeypatch, target, lambda: FoundDrafts(target, rule if rule in NEEDS_Q else ""), text, 2, sampling
    )  # type: ignore[arg-type, return-value]
    assert apart < 1e-12
    assert drafted == {likely[0], 9}


def test_an_earlier_answer_is_drafted_again_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix, "KEPT", 10)
    drafter = SuffixDrafter(torch.device("cpu"))
    for answer in ([11, 12, 13, 14, 15, 16], [21, 22, 23, 24]):
        drafter.open(0, [1, 2])
        drafter.advance(0, (), answer)
        drafter.release(0)
    drafter.open(0, [1, 2, 11, 12, 13])
    assert drafted(drafter, 0, 3) == [14, 15, 16]
    drafter.open(1, [1])
    drafter.advance(1, (), [31])
    drafter.release(1)
    assert drafted(drafter, 0, 3) == []
    assert drafter.kept == 5


def test_a_text_that_goes_back_is_counted_anew() -> None:
    drafter, fresh = (SuffixDrafter(torch.device("cpu")) for _ in range(2))
    drafter.open(0, [1, 2, 3, 1, 2])
    assert drafted(drafter, 0, 4) == [3, 1]
    drafter.go_back(0, 2)
    drafter.advance(0, (), [4, 1, 2])
    fresh.open(0, [1, 2, 4, 1, 2])
    assert drafted(drafter, 0, 4) == drafted(fresh, 0, 4) == [4, 1]
