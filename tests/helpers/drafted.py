"""Whole drafts of a run, noted as they are made, and compared with those of drafters that read the text at once."""

from typing import Any

from specfleet.engine.decoding.grow import Drafts
from specfleet.engine.node.build import new_drafter, new_target
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.plain import model_of


def note_drafts(drafter: Any, drafted: list[tuple[list[int], list[int]]]) -> None:
    """Note each whole draft, and the text before it."""
    draft = drafter.draft

    def noting(tags: list[int], depths: list[int], *more: object) -> Drafts:
        texts = [list(drafter.committed(tag)) for tag in tags]
        drafts: Drafts = draft(tags, depths, *more)
        rows = zip(texts, drafts.tokens.tolist(), depths, strict=True)
        drafted.extend((text, row[:depth]) for text, row, depth in rows if depth in (2, 4))
        return drafts

    drafter.draft = noting


def check_drafts(scenario: Scenario, drafted: list[tuple[list[int], list[int]]]) -> None:
    """Check that each draft is that of a new drafter after the same text."""
    fleet = resolve(scenario)
    model = model_of(scenario.verifiers.model, scenario.precision)
    target, drafter = new_target(fleet, model), new_drafter(fleet, model)
    assert len(drafted) > 5
    for text, row in drafted:
        target.open(0, text)
        drafter.open(0, text)
        drafter.read(0, hidden=target.feed_part(0, len(text) - 1))
        tokens = drafter.draft([0], [4]).tokens[0].tolist()
        assert row[: len(tokens)] == tokens[: len(row)]
        target.release(0)
        drafter.release(0)
