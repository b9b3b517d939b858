"""Estimates against measurements: Vidur's files, the fits, the table, and what it leaves out."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bench.efficiencies import (
    EFFICIENCIES,
    FILES,
    MEDIANS,
    MODEL,
    PLACE,
    SIZES,
    estimated_s,
    fitted_figures,
    read_operators,
    with_figures,
)
from bench.estimates import AMUSD_RUNS, SHOWN_TOKENS, reproduce
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.hardware.shipped import device_of, shape_of

GRID = [(tokens, parallel) for tokens in (1, 8, 64, 256, 1024, 4096) for parallel in (1, 4)]


def write_operators(path: Path, model: Callable[[int], Placed], slower: float = 1.0) -> Path:
    """Write operators in Vidur's form as they would be by the formula, `slower` times that."""
    shape = shape_of(MODEL)
    sizes = [shape.hidden, shape.intermediate, shape.heads, shape.kv_heads]
    rows = []
    for tokens, parallel in GRID:
        times_s = estimated_s(model(parallel), tokens)
        rows.append([tokens, parallel, *sizes, *(1000 * slower * times_s[name] for name in MEDIANS.values())])
    pd.DataFrame(rows, columns=[*PLACE, *SIZES, *MEDIANS]).to_csv(path, index=False)
    return path


def a100(parallel: int) -> Placed:
    return placed_of(f"{MODEL}@{parallel}xa100-80gb")


def h100_as_a100(parallel: int) -> Placed:
    """An H100 with the A100's efficiencies."""
    figures = {name: getattr(device_of("a100-80gb"), name).value for name in EFFICIENCIES}
    return with_figures(placed_of(f"{MODEL}@{parallel}xh100"), figures)


def test_a_fit_finds_the_efficiencies_that_operators_were_made_with(tmp_path: Path) -> None:
    true = {"bandwidth_share": 0.7, "compute_share": 0.6, "product_s": 8e-6, "kernel_s": 3e-6, "kernel_share": 0.4}
    file = write_operators(tmp_path / "vidur.csv", lambda parallel: with_figures(a100(parallel), true))
    found = fitted_figures(read_operators(file), "a100-80gb")
    assert tuple(found) == EFFICIENCIES
    assert found == pytest.approx(true, rel=0.01)


def test_repeated_measurements_of_a_place_are_averaged(tmp_path: Path) -> None:
    file, slow = (write_operators(tmp_path / f"{slower}.csv", a100, slower) for slower in (1.0, 3.0))
    pd.concat([pd.read_csv(file), pd.read_csv(slow)]).to_csv(file, index=False)
    twice = {name: 2 * time_s for name, time_s in estimated_s(a100(1), 1).items()}
    assert read_operators(file)[0].times_s == pytest.approx(twice)


def test_operators_of_another_model_are_refused(tmp_path: Path) -> None:
    file = write_operators(tmp_path / "vidur.csv", a100)
    file.write_text(file.read_text().replace(",4096,11008,", ",2048,11008,"))
    with pytest.raises(InputError, match="needs operators of llama-2-7b, and of nothing else"):
        read_operators(file)


def test_an_efficiency_is_not_used_on_its_own_device(tmp_path: Path) -> None:
    """Operators of an H100 that is as efficient as the A100 are met exactly, and nothing of theirs was fitted."""
    write_operators(tmp_path / FILES["h100"], h100_as_a100)
    rows = [made for made in reproduce(tmp_path).rows if made.quantity == "operators of a layer, ms"]
    assert {made.case["tokens"] for made in rows} == {tokens for tokens, _ in GRID} & set(SHOWN_TOKENS)
    assert {made.case["efficiencies of"] for made in rows} == {"a100-80gb"}
    assert all(made.kind == "estimated" and made.error == pytest.approx(0) for made in rows)


def test_missing_measurements_are_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    alone = reproduce(None)
    assert alone.assumptions[:3] == [f"left out without {file}" for file in (*FILES.values(), AMUSD_RUNS)]
    write_operators(tmp_path / FILES["a100-80gb"], a100, 1.2)
    some = reproduce(tmp_path)
    assert some.assumptions[0] == f"left out without {FILES['h100']}"
    assert len(some.rows) == len(alone.rows) + len(GRID)
    assert some.parts.keys() - alone.parts.keys() == {"Vidur, operators of Llama-2-7B on a100-80gb"}


def test_estimates_without_a_fit_stay_within_their_claims() -> None:
    """What the README and the notes claim: 15 % on average; engines with graphs within 10 %."""
    whole = reproduce(None)
    weighted = sum(part.rows * (part.mean_error or 0) for part in whole.parts.values()) / whole.score.rows
    assert whole.score.mean_error == pytest.approx(weighted)
    assert weighted < 0.15
    figure_3 = [part for source, part in whole.parts.items() if "figure 3" in source and part.rows]
    assert figure_3
    assert all(part.mean_error is not None and part.mean_error < 0.1 for part in figure_3)
