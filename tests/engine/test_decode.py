"""Decoding in one process: refused input, and streams that end when it raises."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.speculative import decode_batch, decode_plain, decode_speculatively
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from tests.helpers.pairs import VOCABULARY

PROMPT = [3, 1, 2]
Pair = tuple[Target, Drafter]
WAYS: dict[str, Callable[[Pair, list[int]], object]] = {
    "plain": lambda pair, prompt: decode_plain(pair[0], prompt, 4),
    "speculative": lambda pair, prompt: decode_speculatively(*pair, prompt, 4, 2),
    "batch": lambda pair, prompt: decode_batch(*pair, [PROMPT, prompt], 4, 2),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))


def new_pair(tiny: Path, shape: Shape = CHAIN) -> Pair:
    large, small = (load_model(str(tiny / role), role, "float64", "cpu") for role in ("target", "drafter"))
    return Target(large), Drafter(small, shape)


@each_way
def test_an_empty_prompt_is_refused_in_one_line(tiny: Path, way: Callable[[Pair, list[int]], object]) -> None:
    with pytest.raises(InputError, match="prompt: needs a token or more"):
        way(new_pair(tiny), [])


@each_way
def test_no_stream_stays_open_when_decoding_fails(
    tiny: Path, way: Callable[[Pair, list[int]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = new_pair(tiny)
    with monkeypatch.context() as broken:
        broken.setattr(Target, "verify", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            way(pair, PROMPT)
    assert pair[0].streams == pair[1].streams == {}
    way(pair, PROMPT)


@pytest.mark.parametrize("shape", [tree(VOCABULARY + 1), tree(2, VOCABULARY + 1)], ids=str)
def test_a_tree_wider_than_the_vocabulary_is_refused(tiny: Path, shape: Shape) -> None:
    with pytest.raises(InputError, match=f"{VOCABULARY + 1} children of a node.*a vocabulary of {VOCABULARY}"):
        new_pair(tiny, shape)


def test_the_widest_trees_are_lossless(tiny: Path) -> None:
    target, _ = new_pair(tiny)
    for shape in (tree(VOCABULARY), dynamic(VOCABULARY + 1, 8)):
        text, _ = decode_speculatively(target, new_pair(tiny, shape)[1], PROMPT, 4, 1)
        assert text == decode_plain(target, PROMPT, 4)


def test_a_stream_of_the_caller_survives_a_refused_batch(tiny: Path) -> None:
    target, drafter = new_pair(tiny)
    target.open(0, PROMPT)
    with pytest.raises(ValueError, match="open"):
        decode_batch(target, drafter, [PROMPT, PROMPT], 4, 2)
    assert list(target.streams) == [0]
    assert drafter.streams == {}
