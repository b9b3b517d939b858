"""Broken targets that send what no model computes: a drafter with a head goes on, and nothing changes for others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specfleet.engine.decoding.eagle import EagleDrafter
from specfleet.engine.net.content import LARGEST, Content
from specfleet.engine.node.build import new_drafter, new_streams
from specfleet.engine.node.executors import DraftExecutor
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import DraftRequest
from specfleet.fleet.times.step import Member, Step
from tests.helpers.pairs import VOCABULARY, pair_scenario

LENGTH = 12


class Drafting:
    """A head's executor and the lines that it says."""

    def __init__(self, tiny: Path, precision: str, **drafters: Any) -> None:
        tables = {"kind": "eagle", "model": str(tiny / "head"), "depth": 3} | drafters
        self.fleet = resolve(change_scenario(pair_scenario(tiny, drafters=tables), {"precision": precision}))
        self.lines: list[str] = []
        drafter = new_drafter(self.fleet, room=(3, self.fleet.room.longest_row))
        assert isinstance(drafter, EagleDrafter)
        self.drafter = drafter
        self.executor = DraftExecutor(drafter, new_streams(self.fleet), say=self.lines.append)

    def opens(self, tag: int, states: np.ndarray, text: list[int]) -> None:
        self.executor.receive(DraftRequest(tag, 0, 1, len(text), opening=True), Content(text, hidden=states))

    def runs(self, kind: Any, *tags: int) -> list[list[int]]:
        members = tuple(Member(tag, 0, 1, LENGTH, 3) for tag in tags)
        self.executor.run(Step(1, kind, members, 0.0, 0, 0))
        return [list(self.executor.drafts[tag].tokens) for tag in tags] if kind == "draft" else []


def sound(fill: float = 0.0) -> np.ndarray:
    states = np.random.default_rng(7).standard_normal((LENGTH - 1, 32)).astype(np.float16)
    return np.sign(states) * np.float16(fill) if fill else states


TEXT = np.random.default_rng(5).integers(VOCABULARY, size=LENGTH).tolist()


@pytest.mark.parametrize("shape", [{}, {"shape": {"kind": "tree", "branching": [2, 1]}}], ids=["chain", "tree"])
def test_no_states_of_a_target_change_the_drafts_for_another(tiny: Path, shape: Any) -> None:
    drafting = Drafting(tiny, "float16", **shape)
    drafting.opens(1, sound(), TEXT)
    drafting.runs("prefill", 1)
    (alone,) = drafting.runs("draft", 1)
    drafting.opens(0, sound(LARGEST), TEXT)
    drafting.opens(1, sound(), TEXT)
    drafting.runs("prefill", 0, 1)
    assert drafting.runs("draft", 0, 1) == [[], alone]
    assert len(drafting.lines) == 1
    assert "stream 0 are no numbers" in drafting.lines[0]
    assert drafting.drafter.cache.storage.isnan().any()
    drafting.executor.release(0)
    assert drafting.drafter.cache.storage.isfinite().all()  # masked values of the next one there


def test_a_head_drafts_after_an_empty_grant(tiny: Path) -> None:
    """The session opens without a draft, and its prefix has grown when it is prefilled."""
    drafting = Drafting(tiny, "float64")
    drafting.opens(0, sound(), TEXT)
    drafting.opens(1, sound()[:-1], TEXT[:-1])
    drafting.executor.receive(DraftRequest(1, 0, 2, LENGTH), Content(TEXT[-1:], hidden=sound()[-1:]))
    drafting.runs("prefill", 0, 1)
    whole, grown = drafting.runs("draft", 0, 1)
    assert whole == grown
