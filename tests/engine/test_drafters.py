"""Drafters besides the small model: lossless for any draft, with the same caches as a fresh one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.speculative import decode_speculatively
from specfleet.engine.decoding import eagle
from specfleet.engine.decoding.cache import shape_of
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import EagleDrafter, EagleHead
from specfleet.engine.decoding.lookup import LookupDrafter, continuation
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.suffix import SuffixDrafter
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.content import Content
from specfleet.engine.node.build import new_drafter, new_streams
from specfleet.engine.node.executors import DraftExecutor
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import DraftRequest
from specfleet.fleet.times.step import Member, Step
from tests.helpers.marks import slow
from tests.helpers.pairs import VOCABULARY
from tests.helpers.plain import plain_text
from tests.helpers.stars import star

PROMPTS = [np.random.default_rng(n).integers(VOCABULARY, size=20 + 7 * n).tolist() for n in range(5)]
SHAPES = [slow(CHAIN, 4), slow(tree(3, 1), 3), (dynamic(3, 8), 4)]


@pytest.fixture(scope="module")
def target(tiny: Path) -> CausalLM:
    return load_model(str(tiny / "target"), "target", "float64", "cpu")


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Callable[[list[int]], list[int]]:
    """The target's text after a prompt: 30 tokens."""
    return lambda prompt: plain_text(str(tiny / "target"), "float64", prompt, 30)


@pytest.fixture(scope="module")
def head(target: CausalLM) -> EagleHead:
    """An untrained head: its guesses are poor, its caches must be right."""
    torch.manual_seed(3)
    return EagleHead(target.config, target.model.get_input_embeddings()).double().eval()


@pytest.mark.parametrize("kind", ["model", "eagle", "eagle, aligned"])
@pytest.mark.parametrize(("shape", "depth"), SHAPES, ids=str)
def test_drafts_equal_those_of_a_fresh_drafter(
    tiny: Path, target: CausalLM, head: EagleHead, kind: str, shape: Shape, depth: int
) -> None:
    """Two rows at once, round after round, beside fresh drafters that prefill all committed tokens."""
    small = load_model(str(tiny / "kin"), "drafter", "float64", "cpu")

    def new_drafter() -> Drafter:
        if kind == "model":
            return Drafter(small, shape)
        cache = target.aligned_cache(shape_of(head.config)) if "aligned" in kind else None
        return EagleDrafter(head, target, shape, cache=cache)

    verifier, drafter = Target(target), new_drafter()
    hidden = {}
    for tag in (0, 1):
        verifier.open(tag, PROMPTS[tag + 2])
        first = verifier.prefill(tag)
        hidden[tag] = first.hidden
        drafter.open(tag, [*PROMPTS[tag + 2], first.token])
        drafter.read(tag, hidden=first.hidden)
    for _ in range(6):
        drafts = drafter.draft([0, 1], [depth, depth])
        for tag in (0, 1):
            fresh = new_drafter()
            fresh.open(tag, list(verifier.committed(tag)))
            fresh.read(tag, hidden=hidden[tag])
            assert fresh.draft([tag], [depth]).tokens[0].tolist() == drafts.tokens[tag].tolist()
        for tag, verdict in enumerate(verifier.verify([0, 1], drafts)):
            hidden[tag] = torch.cat([hidden[tag], verdict.committed_hidden])
            drafter.advance(tag, verdict.path, verdict.tokens, verdict.committed_hidden)


def test_a_head_keeps_the_states_of_rounds_that_others_drafted(
    target: CausalLM, head: EagleHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eagle, "CHUNK", 4)
    verifier, drafters = Target(target), [EagleDrafter(head, target) for _ in range(2)]
    verifier.open(0, PROMPTS[0])
    first = verifier.prefill(0)
    drafters[0].open(0, [*PROMPTS[0], first.token])
    drafters[0].read(0, hidden=first.hidden)
    hidden = [first.hidden]
    for _ in range(9):
        (verdict,) = verifier.decode([0])
        hidden.append(verdict.committed_hidden)
        drafters[0].advance(0, [], verdict.tokens, verdict.committed_hidden)
    drafters[1].open(0, list(verifier.committed(0)))
    drafters[1].read(0, hidden=torch.cat(hidden))
    seldom, fresh = (drafter.draft([0], [4]).tokens.tolist() for drafter in drafters)
    assert seldom == fresh


def test_prompt_lookup_continues_the_longest_and_newest_repetition() -> None:
    assert continuation([1, 2, 3, 9, 1, 2, 3], 2) == [9, 1]
    assert continuation([5, 3, 7, 1, 3, 8, 3], 5) == [8, 3]
    assert continuation([1, 2, 3, 4], 5) == []
    assert continuation([4, 4], 3) == [4]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", [LookupDrafter, SuffixDrafter])
def test_what_is_found_decodes_losslessly_also_where_nothing_repeats(
    target: CausalLM, plain: Callable[[list[int]], list[int]], kind: type[LookupDrafter], temperature: float
) -> None:
    for prompt in PROMPTS:
        tokens, accepted = decode_speculatively(
            Target(target), kind(target.device), prompt, 30, 4, Sampling(temperature)
        )
        assert len(tokens) == 30
        if temperature == 0:
            assert tokens == plain(prompt)
            assert accepted


def test_prompt_lookup_loads_no_model_and_counts_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specfleet.engine.node.build.load_model", None)
    fleet = resolve(star(drafters={"kind": "lookup"}))
    drafting = DraftExecutor(new_drafter(fleet), new_streams(fleet))
    texts = [[1, 2, 3, 9, 1, 2, 3], [1, 2, 3, 4]]
    for tag, text in enumerate(texts):
        drafting.receive(DraftRequest(tag, 0, 1, len(text), opening=True), Content(text))
    members = tuple(Member(tag, 0, 1, len(text), 5) for tag, text in enumerate(texts))
    assert [outcome.drafted for outcome in drafting.run(Step(1, "draft", members))] == [4, 0]
