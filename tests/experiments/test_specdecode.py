"""SpecDecode-Bench reproduced: points are what the simulator takes, and no number predicts itself.

The recordings are the authors' and not ours: these tests make small ones, and one test looks at the real ones where
SPECFLEET_SPECDECODE_BENCH names them.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, specdecode_measured, specdecode_simulated
from specfleet.experiments.reproduce.rows import Inputs, PaperRow, Reproduction
from specfleet.experiments.reproduce.specdecode_measured import FIGURE_1
from specfleet.experiments.reproduce.specdecode_simulated import (
    FIGURE_10,
    FILE,
    RECORDED,
    SETS,
    head_draft,
    profile_with,
)
from specfleet.fleet.acceptance.places import walk
from specfleet.fleet.errors import InputError
from specfleet.fleet.times.step_time import StepTime
from tests.helpers import engines
from tests.helpers.copies import copies, played, taken_s

BOTH = ("specdecode-fig10", "specdecode-fig1")
RECORDING = Path(os.environ.get("SPECFLEET_SPECDECODE_BENCH", FILE))


def write_recordings(folder: Path, requests: int, longest: int = 40) -> Path:
    """Recordings of all sets, with chances of their own; return the folder."""
    rng = np.random.default_rng(5)
    rows = []
    for place, dataset in enumerate(SETS.values()):
        for number in range(requests):
            tokens = int(rng.integers(longest // 2, longest))
            entries = [np.minimum(rng.geometric(share, tokens), RECORDED + 1).tolist() for share in (0.4, 0.6)]
            eagle, ngram = ([1, *each[1:]] for each in entries)
            rows.append((dataset, str(number), 50 + 40 * place + number, tokens, eagle, ngram))
    engines.write_specdecode_bench(folder / FILE, rows)
    return folder


def reproduced(name: str, folder: Path) -> Reproduction:
    return REPRODUCTIONS[name](Inputs(data=str(folder)))


def found(rows: list[PaperRow], **case: Any) -> PaperRow:
    """The one speed-up of a case."""
    (one,) = [each for each in rows if case.items() <= each.case.items() and each.quantity == "speed-up"]
    return one


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recordings(tmp_path_factory.mktemp("recordings"), requests=6)


@pytest.fixture(scope="module")
def made(recordings: Path) -> dict[str, Reproduction]:
    """Both figures of these recordings."""
    return {name: reproduced(name, recordings) for name in BOTH}


@pytest.mark.parametrize("name", BOTH)
def test_missing_recordings_are_asked_for_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^reproduce {name}: give --data FOLDER, which holds {FILE}$"):
        REPRODUCTIONS[name](Inputs())
    with pytest.raises(InputError, match=rf"^--data .*: has no {FILE}, which reproduce {name} reads$"):
        reproduced(name, tmp_path)


def test_recordings_that_cannot_be_compared_are_refused_in_one_line(recordings: Path, tmp_path: Path) -> None:
    rows = [(dataset, "0", 9, 3, [1, 2, 1], [1, 1, 2]) for dataset in SETS.values()]
    engines.write_specdecode_bench(tmp_path / FILE, [*rows, ("cnn", "1", 9, 3, [1], [1, 1, 2])])
    for name in BOTH:
        with pytest.raises(InputError, match=r": cnn has 2 of n-gram and 1 of EAGLE-3; needs as many answers of both"):
            reproduced(name, tmp_path)
    table = specdecode_measured.recordings(Inputs(data=str(recordings)), "specdecode-fig1")
    endless = {curve: each._replace(texts=[(1,) * 8191], prompts=[9]) for curve, each in table.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specdecode_measured, "recordings", lambda *_: endless)
        with pytest.raises(InputError, match=r"^--data: every answer of InstructCoder by EAGLE-3 has 8192 tokens"):
            reproduced("specdecode-fig1", tmp_path)


@pytest.mark.parametrize("depth", [1, 3, 5, "oracle"])
def test_a_point_of_figure_10_is_the_simulators(depth: int | str, tmp_path: Path) -> None:
    folder = write_recordings(tmp_path, requests=1)
    rows = reproduced("specdecode-fig10", folder).rows
    recorded = specdecode_simulated.recordings(Inputs(data=str(folder)), "specdecode-fig10")["GSM8K", "EAGLE-3"]
    (text,), (prompt,) = recorded.texts, recorded.prompts
    read = [0, *text[:-1]]  # as the authors read it
    for batch in (8, 16):
        planned = RECORDED if depth == "oracle" else int(depth)
        oracle = played([[(k, k) for k in walk(read, RECORDED)]] * batch) if depth == "oracle" else None
        speculative = copies(tmp_path, profile_with(head_draft()), [read] * batch, prompt, planned, RECORDED)
        alone = copies(tmp_path, profile_with(StepTime()), [read] * batch, prompt, 1, RECORDED)
        alone_s = taken_s(alone, played([[(0, 0)] * len(read)] * batch))
        point = found(rows, set="GSM8K", drafter="EAGLE-3", depth=depth, B=batch)
        assert point.ours == pytest.approx(alone_s / taken_s(speculative, oracle), rel=1e-9)


def test_figure_10_has_every_point_once(made: dict[str, Reproduction]) -> None:
    rows = made["specdecode-fig10"].rows
    points = [one for one in rows if one.quantity == "speed-up"]
    assert len({tuple(one.case.values()) for one in points}) == len(points) == 8 * 4 * 6 + 4 * 6
    equal = [one.ours for one in rows if one.quantity != "speed-up"]
    assert sum(map(float, equal)) == sum(round(one.ours or 0, 2) == one.paper for one in points)  # type: ignore[arg-type]


def test_no_point_of_figure_10_moves_with_what_is_printed(
    recordings: Path, made: dict[str, Reproduction], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made["specdecode-fig10"].rows
    changed = {curve: tuple(1.1 * value for value in values) for curve, values in FIGURE_10.items()}
    monkeypatch.setattr(specdecode_simulated, "FIGURE_10", changed)
    after = reproduced("specdecode-fig10", recordings).rows
    points = [place for place, one in enumerate(before) if one.quantity == "speed-up"]
    assert points
    assert [before[place].ours for place in points] == [after[place].ours for place in points]


def test_figure_1_moves_with_instructcoders_numbers_alone(
    recordings: Path, made: dict[str, Reproduction], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made["specdecode-fig1"].rows
    kinds = {(one.case["set"], one.kind) for one in before if one.quantity == "speed-up"}
    predicted = {(name, "predicted") for name in SETS if name != "InstructCoder"}
    assert kinds == predicted | {("InstructCoder", "fitted")}
    for fitted in (False, True):
        changed = {
            curve: tuple((1.1 if (curve[0] == "InstructCoder") == fitted else 1.0) * value for value in values)
            for curve, values in FIGURE_1.items()
        }
        monkeypatch.setattr(specdecode_measured, "FIGURE_1", changed)
        after = reproduced("specdecode-fig1", recordings).rows
        assert [one.paper for one in before] != [one.paper for one in after]
        assert ([one.ours for one in before] == [one.ours for one in after]) == (not fitted)


def test_sharegpts_speed_ups_are_forecast_with_intervals_around_them(made: dict[str, Reproduction]) -> None:
    figure = made["specdecode-fig1"]
    forecast = [one for one in figure.rows if one.case.get("set") == "ShareGPT"]
    assert len(forecast) == 8
    for one in forecast:
        low, high = map(float, one.case["interval"].split(" to "))
        assert one.paper is None
        assert low < one.ours < high
    assert figure.score.rows == sum(part.rows for part in figure.parts.values()) == 16


def test_a_cut_answer_is_in_figure_10_alone(recordings: Path, made: dict[str, Reproduction], tmp_path: Path) -> None:
    """One that never stopped by itself changes nothing of what is predicted for a measurement that leaves it out."""
    table = specdecode_measured.recordings(Inputs(data=str(recordings)), "specdecode-fig1")
    cut = {
        curve: each._replace(texts=[*each.texts, (RECORDED,) * 8191], prompts=[*each.prompts, 9])
        for curve, each in table.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specdecode_measured, "recordings", lambda *_: cut)
        with_it = reproduced("specdecode-fig1", tmp_path).rows
    assert with_it == made["specdecode-fig1"].rows


@pytest.mark.slow
@pytest.mark.skipif(not RECORDING.is_file() or RECORDING.name != FILE, reason="the recordings are not ours")
def test_on_the_authors_recordings_both_figures_hold() -> None:
    rows = reproduced("specdecode-fig10", RECORDING.parent).rows
    counted = [one.ours for one in rows if one.quantity != "speed-up"]
    assert counted[0] >= 180
    score = reproduced("specdecode-fig1", RECORDING.parent).score
    assert score.mean_error < 0.03
    assert score.worst_error < 0.06
