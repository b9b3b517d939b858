"""Numbers on the command lines of studies: what they cannot run with is refused before anything runs."""

import argparse
import importlib

import pytest

pytest.importorskip("torch")

from bench.__main__ import STUDIES
from bench.numbers import not_negative, positive, seed, whole

NEVER = ["", "x", "nan", "inf", "-1", "1e999", "0x1", "--"]
REFUSED = {
    whole: [*NEVER, "0", "1.5", "1e3"], seed: [*NEVER, "1.5"], positive: [*NEVER, "0", "-0.0"], not_negative: NEVER,
}  # fmt: skip
TAKEN = {whole: ["1", "12"], seed: ["0", "7"], positive: ["0.5", "1e3", "2"], not_negative: ["0", "0.7"]}


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_invalid_numbers_are_refused_with_the_allowed_range(kind: type) -> None:
    for text in REFUSED[kind]:
        with pytest.raises(argparse.ArgumentTypeError, match=r"allowed: .*numbers"):
            kind(text)
    assert [kind(text) for text in TAKEN[kind]] == [float(text) for text in TAKEN[kind]]


@pytest.mark.parametrize("name", STUDIES)
def test_no_study_takes_numbers_of_any_kind(name: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"bench.{name}").add_options(parser)
    kinds = {action.dest: action.type for action in parser._actions}
    assert not {option for option, kind in kinds.items() if kind in (int, float)}
