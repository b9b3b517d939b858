"""Parts of prompts beside verifications: one pass of the model, with the results of a pass for each."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specfleet.engine.decoding import together
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.together import PromptPart, run_together
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.policies.shapes import CHAIN, Shape, tree
from tests.helpers.pairs import HEAD3, VOCABULARY

TEXTS = [[(7 * place + 3 * tag) % VOCABULARY for place in range(30)] for tag in range(5)]


@pytest.mark.parametrize("shape", [CHAIN, tree(2, 2, 1)])
@pytest.mark.parametrize("taps", [(), HEAD3.taps])
def test_one_pass_is_as_many(tiny: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape, taps: tuple[int, ...]) -> None:
    """Rows 0 and 1 verify, row 2 begins in chunks, rows 3 and 4 end their prompts; a part longer than 8 is cut."""
    monkeypatch.setattr(together, "CHUNK", 8)
    found = []
    for joins in (True, False):
        target = Target(load_model(str(tiny / "target"), "target", "float64"), taps=taps)
        drafter = Drafter(load_model(str(tiny / "kin"), "drafter", "float64"), shape)
        for tag, text in enumerate(TEXTS):
            target.open(tag, text[: 12 + tag])
        for tag in (1, 0):
            drafter.open(tag, [*TEXTS[tag][: 12 + tag], target.prefill(tag).token])
        target.feed_part(4, 10)
        passes: list[int] = []
        counted(target, passes)
        target.cache.joins = joins
        drafts = drafter.draft([0, 1], [3, 2])
        parts = [PromptPart(2, 5, False), PromptPart(3, 0, True), PromptPart(4, 0, True)]
        states, verdicts = run_together(target, parts, [0, 1], drafts)
        assert len(passes) == (2 if joins else 4)  # row 3 has 15 tokens
        texts = [target.committed(tag) for tag in range(5)]
        more = [target.verify([tag], drafter.draft([0], [0]))[0].token for tag in (0, 1, 3, 4)]  # on these caches
        hidden = [states[tag] for tag in (2, 3, 4)] + [verdicts[tag].hidden for tag in (0, 1)]
        found.append((texts, more, [verdicts[tag].path for tag in (0, 1)], hidden))
    assert found[0][:3] == found[1][:3]
    for one, other in zip(found[0][3], found[1][3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def counted(target: Target, passes: list[int]) -> None:
    """Note the tokens of each pass of a target's model."""
    forward = target.model.forward

    def counting(cache: Any, tokens: torch.Tensor, *more: Any) -> torch.Tensor:
        passes.append(len(tokens))
        return forward(cache, tokens, *more)

    target.model.forward = counting  # type: ignore[method-assign]
