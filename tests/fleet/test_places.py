"""Acceptance by place: files of places, walks over texts, and mean lengths by depth."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.acceptance.models import expected_committed, pmf
from specfleet.fleet.acceptance.places import ByPlace, PlaceSampler, read_places, walk, write_places
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.facts import accepts
from tests.helpers.places import repeatable, texts_of, tokens_and_steps

DEPTH = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places")


@repeatable
@given(texts=texts_of(DEPTH), depth=st.integers(1, DEPTH))
def test_mean_at_every_depth_equals_a_plain_loop(folder: Path, texts: list[list[int]], depth: int) -> None:
    file = folder / "places.parquet"
    write_places(texts, file)
    model = ByPlace(str(file), DEPTH)
    assert read_places(model) == tuple(map(tuple, texts))
    tokens, steps = map(sum, zip(*[tokens_and_steps(text, depth) for text in texts], strict=True))
    assert expected_committed(model, depth) == pytest.approx(tokens / steps, rel=1e-12)
    assert pmf(model, depth) == pytest.approx(
        np.bincount([k for text in texts for k in walk(text, depth)], minlength=depth + 1) / steps
    )


def test_a_deeper_draft_than_was_recorded_is_refused(tmp_path: Path) -> None:
    write_places([[3, 0]], tmp_path / "places.parquet")
    with pytest.raises(InputError, match=r"acceptance: depth = 4 goes beyond the recorded depth = 3; .*up to 3"):
        expected_committed(ByPlace(str(tmp_path / "places.parquet"), 3), 4)


def test_short_texts_continue_with_random_ones(tmp_path: Path) -> None:
    write_places([[1], [2, 2]], tmp_path / "places.parquet")
    sampler = PlaceSampler(ByPlace(str(tmp_path / "places.parquet"), 2), np.random.default_rng(0))
    sampler.begin_session(7, first=10, request=4)  # text 0 again
    assert sampler.draw(7, 2, base=11) == 1
    after = [sampler.draw(7, 2, base=base) for base in range(12, 400)]
    assert set(after) == {1, 2}
    assert after == [sampler.draw(7, 2, base=base) for base in range(12, 400)]  # a place keeps its answer
    assert {sampler.draw(7, 1, base=base) for base in range(11, 400)} == {1}


def test_continuations_do_not_depend_on_the_order_of_calls(tmp_path: Path) -> None:
    write_places([[1], [2, 2]], tmp_path / "places.parquet")
    drawn = []
    for requests in ((4, 6), (6, 4)):
        sampler = PlaceSampler(ByPlace(str(tmp_path / "places.parquet"), 2), np.random.default_rng(0))
        for request in requests:
            sampler.begin_session(request, first=10, request=request)
            for base in range(11, 99):
                sampler.draw(request, 2, base)
        drawn.append({request: [sampler.draw(request, 2, base) for base in range(11, 99)] for request in requests})
    assert drawn[0] == drawn[1]
    assert drawn[0][4] != drawn[0][6]


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    model = ByPlace(str(tmp_path / "places.parquet"), 2)
    for texts in ([[0, 1]], [[2, 1, 0]]):
        write_places(texts, Path(model.file))
        assert read_places(model) == (tuple(texts[0]),)


def test_recordings_are_named_with_their_mean_length(tmp_path: Path) -> None:
    write_places([[2, 0, 0, 1, 0]], tmp_path / "places.parquet")
    assert accepts(ByPlace(str(tmp_path / "places.parquet"), 2), 2) == "by-place: 1.50 accepted tokens a round"


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"text": [0, 0], "place": [1, 3], "accepted": [1, 1]}, "text 0 has place 3 where place 2 follows"),
        ({"text": [0, 0], "place": [1, 1], "accepted": [1, 1]}, "text 0 has place 1 where place 2 follows"),
        ({"text": [0, 1], "place": [1, 0], "accepted": [1, 1]}, "text 1 has place 0 where place 1 follows"),
        ({"text": [0], "place": [1], "accepted": [5]}, "text 0, place 1: accepted = 5; allowed: 0 to .*depth = 4"),
        ({"text": [0], "place": [1], "accepted": [-1]}, "text 0, place 1: accepted = -1; allowed: 0 to"),
        ({"text": [], "place": [], "accepted": []}, "needs rows; has none"),
        ({"text": [0], "place": [1]}, "lacks the column 'accepted'"),
    ],
)
def test_invalid_recordings_are_refused_with_the_reason(tmp_path: Path, columns: dict[str, Any], says: str) -> None:
    file = tmp_path / "places.parquet"
    pq.write_table(pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()}), file)
    with pytest.raises(InputError, match=rf"^acceptance.file .*places.parquet: {says}"):
        read_places(ByPlace(str(file), 4))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"acceptance.file nowhere.parquet: cannot be read"):
        read_places(ByPlace("nowhere.parquet", 4))
