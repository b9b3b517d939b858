"""The reader of acceptance by place: SpecDecode-Bench's recordings."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.calibration.readers.specdecode_bench import DRAFTED, Method, read_specdecode_bench
from specfleet.fleet.errors import InputError
from tests.helpers import engines
from tests.helpers.marks import slow
from tests.helpers.places import repeatable, texts_of, tokens_and_steps

METHODS: tuple[Method, ...] = ("eagle", "ngram")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize("method", METHODS)
@repeatable
@given(texts=texts_of(DRAFTED), depth=st.integers(1, DRAFTED))
def test_places_come_back_as_they_were_recorded(
    folder: Path, method: Method, texts: list[list[int]], depth: int
) -> None:
    lines = folder / "combined.jsonl"
    lines.write_text(engines.specdecode_bench(texts, method))
    rows = [
        ("a", str(number), 10 + number, len(text) + 1, *[[1, *[k + 1 for k in text]]] * 2)
        for number, text in enumerate(texts)
    ]
    table = engines.write_specdecode_bench(folder / "all.parquet", [*rows, ("b", "0", 9, 3, [1, 1, 1], [1, 1, 1])])
    tokens, steps = map(sum, zip(*[tokens_and_steps(text, depth) for text in texts], strict=True))
    for recording in (
        read_specdecode_bench([lines], method, depth=depth),
        read_specdecode_bench([table], method, "a", depth),
    ):
        assert recording.texts == tuple(map(tuple, texts))
        assert recording.lengths == tuple((10 + number, len(text) + 1) for number, text in enumerate(texts))
        assert (recording.rounds, recording.accepted + recording.rounds) == (steps, tokens)
    assert len(read_specdecode_bench([table], method).texts) == len(texts) + 1


ROW = ("a", "7", 9, 3, [1, 2, 1], [1, 1, 2])


@pytest.mark.parametrize(
    ("row", "method", "says"),
    [
        (("a", "7", 9, 3, [2, 2, 1], [1, 1, 2]), "eagle", "a 7: acc_len_eagle3[0] = 2 contradicts what a prefill"),
        (("a", "7", 9, 4, [1, 2, 1], [1, 1, 2]), "ngram", "a 7: len(acc_len_ngram) = 3 contradicts .* = 4"),
        (("a", "7", 9, 3, [1, 22, 1], [1, 1, 2]), "eagle", "a 7: acc_len_eagle3[1] = 22; allowed: 1 to 21"),
        (("a", "7", 9, 3, [1, 0, 1], [1, 1, 2]), "eagle", "a 7: acc_len_eagle3[1] = 0; allowed: 1 to 21"),
        (("a", "7", 0, 3, [1, 2, 1], [1, 1, 2]), "eagle", "a 7: has 0 prompt tokens and 3 entries"),
        (("a", "7", 9, 1, [1], [1]), "eagle", "holds no answer with a place after its prefill"),
        (("a", "7", 9, 3, [1, None, 1], [1, 1, 2]), "eagle", "column 'acc_len_eagle3' lacks 1 of its 1 values"),
    ],
)
def test_an_answer_that_contradicts_the_format_is_refused(
    tmp_path: Path, row: tuple[Any, ...], method: Method, says: str
) -> None:
    assert read_specdecode_bench([engines.write_specdecode_bench(tmp_path / "good.parquet", [ROW])], method).rounds
    pattern = says.replace("[", r"\[").replace("]", r"\]").replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(InputError, match=rf"all.parquet[,:] {pattern}|all.parquet: {pattern}"):
        read_specdecode_bench([engines.write_specdecode_bench(tmp_path / "all.parquet", [row])], method)


def test_an_unknown_dataset_names_those_that_there_are(tmp_path: Path) -> None:
    file = engines.write_specdecode_bench(tmp_path / "all.parquet", [ROW])
    with pytest.raises(InputError, match="--dataset gsm8k is not in it; allowed: a"):
        read_specdecode_bench([file], "eagle", "gsm8k")


def test_answers_and_eagle_entries_may_differ_in_length(tmp_path: Path) -> None:
    rows = [("a", "0", 9, 30, [1, 3, 1], [1] * 30), ("a", "1", 9, 2, [1, 3, 1], [1, 1])]
    recording = read_specdecode_bench([engines.write_specdecode_bench(tmp_path / "all.parquet", rows)])
    assert recording.lengths == ((9, 3), (9, 3))


RECORDING = Path(os.environ.get("SPECFLEET_SPECDECODE_BENCH", "specdecode-bench-llama31-8b-acceptance.parquet"))
DEPTHS = (1, 3, 5, 8)
PUBLIC = {  # mean tokens a step when a draft begins where the last step ended, by a plain loop over the public files
    ("gsm8k", "eagle"): (1.706, 2.411, 2.693, 2.814),
    ("cnn", "eagle"): (1.678, 2.338, 2.591, 2.735),
    ("instructcoder", "eagle"): (1.686, 2.361, 2.643, 2.816),
    ("sharegpt", "eagle"): (1.663, 2.258, 2.483, 2.615),
    ("gsm8k", "ngram"): (1.110, 1.165, 1.178, 1.185),
    ("cnn", "ngram"): (1.206, 1.335, 1.379, 1.406),
    ("instructcoder", "ngram"): (1.512, 2.036, 2.300, 2.514),
    ("sharegpt", "ngram"): (1.236, 1.396, 1.452, 1.488),
}
CASES = [*[slow(*case) for case in PUBLIC if case != ("gsm8k", "eagle")], ("gsm8k", "eagle")]


@pytest.mark.skipif(not RECORDING.is_file(), reason="SPECFLEET_SPECDECODE_BENCH names no recording; it is not ours")
@pytest.mark.parametrize(("dataset", "method"), CASES)
def test_real_texts_give_their_known_means_at_every_depth(dataset: str, method: Method) -> None:
    for depth, expected in zip(DEPTHS, PUBLIC[dataset, method], strict=True):
        read = read_specdecode_bench([RECORDING], method, dataset, depth)
        assert 1 + read.accepted / read.rounds == pytest.approx(expected, abs=5e-4)
