"""Measured times of experts from aiconfigurator-core's tables: what takes them, and what a left-out row shows."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import specfleet
from specfleet.experiments.notes import notes_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed, roofline_of
from specfleet.fleet.hardware.profile import beside, placed_of
from specfleet.fleet.hardware.tables import COUNTS, FILE, MODULE, SCHEMA, Measured, experts_of, tables_at
from specfleet.fleet.scenario.reading import make_scenario

PLACE = "minimax-m2@4xh100:fp8"
OWN = (3072, 1536, 8, 256, 4, 1)  # sizes of that place's experts, in the order of COUNTS
TIMES_MS = {1: 0.03, 16: 0.1, 256: 0.3, 1024: 0.5}


def write(
    folder: Path,
    version: str = "0.2.0",
    times_ms: Mapping[int, float] = TIMES_MS,
    sizes: tuple[int, ...] = OWN,
    engine: str = "vllm",
) -> None:
    """Write a table of one layer; the same with balanced tokens and in bf16 takes no time."""
    own = dict(zip(COUNTS, sizes, strict=True))
    kinds = (
        ("fp8_block", "power_law_1.01", 1.0),
        ("fp8_block", "balanced", 1e-3),
        ("bfloat16", "power_law_1.01", 1e-3),
    )
    rows = [
        own | {"moe_dtype": dtype, "num_tokens": tokens, "distribution": spread, "latency": share * time_ms}
        for dtype, spread, share in kinds
        for tokens, time_ms in times_ms.items()
    ]
    place = folder / MODULE / "systems" / "data" / "h100_sxm" / "moe" / engine / version
    place.mkdir(parents=True)
    (folder / MODULE / "__init__.py").touch()  # comes before an installed one
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), place / FILE)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up package that is found first."""
    write(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def without(placed: Placed) -> Placed:
    return msgspec.structs.replace(placed, tabled=None)


@pytest.mark.usefixtures("package")
def test_experts_take_the_time_of_their_table() -> None:
    """Between its rows, and in proportion beyond them; everything else of a pass stays as it is."""
    placed = placed_of(PLACE)
    passes, zero = (
        roofline_of(msgspec.structs.replace(placed, tabled=times))
        for times in (placed.tabled, Measured((1.0, 2.0), (0.0, 0.0)))
    )
    for fed, expected_ms in ((16, 0.1), (64, 0.1 + 0.2 * 48 / 240), (2048, 1.0)):
        experts_s = (passes.products_s(fed) - zero.products_s(fed)) / placed.shape.layers
        assert 1e3 * experts_s == pytest.approx(expected_ms)
    assert roofline_of(placed).attention == roofline_of(without(placed)).attention


def test_the_newest_version_with_the_shape_counts(package: Path) -> None:
    write(package, "0.10.0", {tokens: 2 * time_ms for tokens, time_ms in TIMES_MS.items()})
    write(package, "0.11.0", sizes=(3072, 1536, 8, 128, 4, 1))
    found = placed_of(PLACE).tabled
    assert found is not None
    assert found.source.endswith("vllm 0.10.0 on NVIDIA H100 SXM 80 GB")
    assert found.at(16) == pytest.approx(0.2e-3)


def test_more_tokens_take_no_less(package: Path) -> None:
    write(package, "0.3.0", {1: 0.03, 16: 0.2, 32: 0.1, 1024: 0.5})
    found = placed_of(PLACE).tabled
    assert found is not None
    assert found.times_s == pytest.approx((0.03e-3, 0.1e-3, 0.1e-3, 0.5e-3))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("place", "engine"),
    [("llama-3.1-8b@h100:fp8", "graphs"), ("minimax-m2@8xh100:bf16", "graphs"), ("minimax-m2@8xh100:fp8", "graphs"),
     ("minimax-m2@4xh200:fp8", "graphs"), (PLACE, "trtllm"), (PLACE, "eager")],
)  # fmt: skip
def test_what_no_table_has_stays_a_roofline(place: str, engine: str) -> None:
    placed = placed_of(place, engine)
    assert placed.tabled is None
    assert "target.experts" not in specfleet.estimate(place, engine=engine).sources


def test_experts_that_cannot_be_split_are_held_whole(package: Path) -> None:
    """8 devices would have 192 of 1,536 numbers each, which are no blocks of 128; 4 have 384, three of them."""
    write(package, "0.3.0", sizes=(3072, 1536, 8, 256, 1, 8))
    write(package, "0.4.0", {1: 9.0, 2: 9.0}, sizes=(3072, 1536, 8, 256, 1, 4))
    whole, split = placed_of(PLACE.replace("4x", "8x")).tabled, placed_of(PLACE).tabled
    assert whole is not None
    assert split is not None
    assert (whole.times_s, split.times_s) == (tuple(time_ms / 1e3 for time_ms in TIMES_MS.values()),) * 2


@pytest.mark.usefixtures("package")
def test_the_first_precision_that_a_device_has_counts() -> None:
    placed = placed_of(PLACE)
    for names, least_s in ((("absent", "fp8_block", "bfloat16"), 0.03e-3), (("bfloat16", "fp8_block"), 0.03e-6)):
        engine = msgspec.structs.replace(placed.engine, tabled_experts={"fp8": names})
        measured = experts_of(placed.shape, 4, "fp8", placed.device, engine)
        assert measured is not None
        assert measured.times_s[0] == pytest.approx(least_s)


@pytest.mark.usefixtures("package")
def test_rows_that_are_alike_use_the_same_experts() -> None:
    placed = placed_of(PLACE)
    assert roofline_of(placed, alike=True) == roofline_of(without(placed), alike=True)


@pytest.mark.usefixtures("package")
def test_a_drafter_has_no_experts_of_its_target() -> None:
    target = placed_of(PLACE)
    assert beside(target, placed_of("llama-3.2-1b@h100").shape).tabled is None
    assert beside(target, target.shape, "fp8", 4).tabled == target.tabled is not None


@pytest.mark.usefixtures("package")
def test_estimates_and_runs_name_the_tables() -> None:
    profile = specfleet.estimate(PLACE)
    assert profile.sources["verify"].endswith("experts measured, one pass")
    assert profile.sources["target.experts"].startswith("measured: aiconfigurator-core")
    scenario = make_scenario({"name": "t", "profile": msgspec.to_builtins(profile), "drafters": {"count": 0}})
    assert any("experts of the target are measured: aiconfigurator-core" in note for note in notes_of(scenario))


def test_without_the_package_an_estimate_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specfleet.fleet.hardware.tables.find_spec", lambda _: None)
    assert "specfleet[tables]" in specfleet.estimate(PLACE).sources["target.experts"]
    assert "target.experts" not in specfleet.estimate("llama-3.1-8b@h100").sources


def test_a_damaged_table_is_one_line(package: Path) -> None:
    file = next(package.rglob(FILE))
    file.write_bytes(b"version https://git-lfs")
    with pytest.raises(InputError, match=f"{FILE}: cannot be read as Parquet"):
        placed_of(PLACE)


@pytest.mark.skipif(tables_at() is None, reason="needs aiconfigurator-core, which has no wheel for this Python")
@pytest.mark.parametrize(
    ("place", "engine"),
    [(PLACE, "vllm"), ("kimi-k2.5@8xh200:bf16:experts-int4", "vllm"), ("deepseek-v3@8xb200:fp8", "sglang"),
     ("qwen3.5-397b-a17b@8xh200:fp8", "sglang"), ("qwen3-235b-a22b@4xh100:fp8", "vllm")],
)  # fmt: skip
def test_rows_left_out_of_tables_are_found_again(place: str, engine: str) -> None:
    """Sums of a pass at each row that is left out, by the other rows: 3 % off in the mean."""
    placed = placed_of(place, engine)
    table = placed.tabled
    assert table is not None
    errors = []
    for number in range(1, len(table.tokens) - 1):
        fed = round(table.tokens[number])
        tokens, times_s = (kept[:number] + kept[number + 1 :] for kept in (table.tokens, table.times_s))
        others = Measured(tokens, times_s)
        rest_s = roofline_of(msgspec.structs.replace(placed, tabled=Measured((1.0, 2.0), (0.0, 0.0)))).products_s(fed)
        found_s, true_s = (rest_s + placed.shape.expert_layers * float(times.at(fed)) for times in (others, table))
        errors.append(abs(found_s / true_s - 1))
    assert np.mean(errors) < 0.03
