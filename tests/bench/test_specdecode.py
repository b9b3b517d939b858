"""SpecDecode-Bench: points are what the simulator takes, and no number predicts itself.

The recordings are the authors' and not ours: these tests make small ones.
"""

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import specdecode_fig1 as figure_1
from bench.specdecode import FILE, METHODS, RECORDED, SETS, read_recordings
from bench.specdecode_fig1 import FIGURE_1, padded, specdecode_fig1
from specfleet.experiments.reproduce.rows import Reproduction
from specfleet.fleet.errors import InputError
from specfleet.fleet.times.roofline import Roofline
from tests.fleet.test_roofline import rooflines

Answer = tuple[str, int, int, list[int], list[int]]
"""Data set, tokens of prompt and answer, entries of n-gram and of EAGLE-3."""


def write(file: Path, answers: list[Answer]) -> Path:
    names = ("dataset", "prompt_tokens", "generated_tokens", *METHODS.values())
    pq.write_table(pa.table(dict(zip(names, zip(*answers, strict=True), strict=True))), file)
    return file


def write_recordings(folder: Path, requests: int) -> Path:
    """Recordings of all sets, with chances of their own; return the file."""
    rng = np.random.default_rng(5)
    answers: list[Answer] = []
    for place, dataset in enumerate(SETS.values()):
        for number in range(requests):
            tokens = int(rng.integers(20, 40))
            eagle, ngram = (
                [1, *np.minimum(rng.geometric(share, tokens), RECORDED + 1).tolist()[1:]] for share in (0.4, 0.6)
            )
            answers.append((dataset, 50 + 40 * place + number, tokens, ngram, eagle))
    return write(folder / FILE, answers)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recordings(tmp_path_factory.mktemp("recordings"), requests=6)


@pytest.fixture(scope="module")
def measured(recordings: Path) -> Reproduction:
    return specdecode_fig1(read_recordings(recordings))


def test_texts_are_what_a_step_accepts_at_each_place(tmp_path: Path) -> None:
    file = write(tmp_path / FILE, [(dataset, 9, 3, [1, 1, 2], [1, 3, 1, 21]) for dataset in SETS.values()])
    read = read_recordings(file)
    assert read["CNN", "n-gram"] == ([(0, 1)], [9])
    assert read["CNN", "EAGLE-3"] == ([(2, 0, RECORDED)], [9])


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (("cnn", 9, 3, [1, 1, 2], [2, 3, 1]), "do not begin with 1"),
        (("cnn", 9, 3, [1, 1, 2], [1, 22, 1]), "are not from 1 to 21"),
        (("cnn", 9, 4, [1, 1, 2], [1, 3, 1]), "3 entries of acc_len_ngram for another length"),
        (("cnn", 9, 3, [1, 1, 2], [1]), "cnn needs as many answers of both drafters"),
    ],
)
def test_recordings_of_another_form_are_refused(answer: Answer, line: str, tmp_path: Path) -> None:
    others: list[Answer] = [(dataset, 9, 3, [1, 1, 2], [1, 3, 1]) for dataset in SETS.values() if dataset != "cnn"]
    with pytest.raises(InputError, match=line):
        read_recordings(write(tmp_path / FILE, [*others, answer]))


@pytest.mark.parametrize("fitted", [False, True])
def test_figure_1_moves_with_instructcoders_numbers_alone(
    fitted: bool, recordings: Path, measured: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = measured.rows
    kinds = {(made.case["set"], made.kind) for made in before if made.quantity == "speed-up"}
    assert kinds == {(name, "fitted" if name == "InstructCoder" else "predicted") for name in SETS}
    changed = {
        curve: tuple((1.1 if (curve[0] == "InstructCoder") == fitted else 1.0) * value for value in values)
        for curve, values in FIGURE_1.items()
    }
    monkeypatch.setattr(figure_1, "FIGURE_1", changed)
    after = specdecode_fig1(read_recordings(recordings)).rows
    assert [made.paper for made in before] != [made.paper for made in after]
    assert ([made.ours for made in before] == [made.ours for made in after]) == (not fitted)


def test_sharegpts_speed_ups_are_forecast_with_intervals_around_them(measured: Reproduction) -> None:
    forecast = [made for made in measured.rows if made.case.get("set") == "ShareGPT"]
    assert len(forecast) == 8
    for made in forecast:
        low, high = map(float, made.case["interval"].split(" to "))
        assert made.paper is None
        assert low < made.ours < high
    assert measured.score.rows == sum(part.rows for part in measured.parts.values()) == 16


def test_answers_that_did_not_stop_are_not_in_figure_1(recordings: Path, measured: Reproduction) -> None:
    read = read_recordings(recordings)
    cut = {
        curve: each._replace(texts=[*each.texts, (RECORDED,) * 8191], prompts=[*each.prompts, 9])
        for curve, each in read.items()
    }
    assert specdecode_fig1(cut).rows == measured.rows
    endless = {curve: each._replace(texts=[(1,) * 8191], prompts=[9]) for curve, each in read.items()}
    with pytest.raises(InputError, match=r"every answer of InstructCoder by EAGLE-3 has 8192 tokens"):
        specdecode_fig1(endless)


@given(rooflines(), st.sets(st.integers(1, 200), min_size=1, max_size=6), st.integers(1, 600), st.integers(0, 2000))
def test_a_padded_pass_takes_what_the_next_size_takes(
    roofline: Roofline, sizes: set[int], tokens: int, context: int
) -> None:
    one_pass = msgspec.structs.replace(roofline, in_turn=False)
    captured = sorted(sizes)
    full = padded(one_pass, captured)
    filled = min((size for size in captured if size >= tokens), default=tokens)
    alone = msgspec.structs.replace(one_pass, attention=())
    assert msgspec.structs.replace(full, attention=()).mean_s(tokens) == pytest.approx(alone.mean_s(filled), abs=1e-9)
    assert full.attention == one_pass.attention
    assert full.mean_s(tokens, context) >= one_pass.mean_s(tokens, context) - 1e-9
