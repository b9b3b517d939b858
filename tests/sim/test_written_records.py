"""The compiled loop writes the records of a long simulation to a file as they come."""

import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

import specfleet
from specfleet.fleet.errors import OutputError
from specfleet.fleet.records.run import RunWriter, read_run
from specfleet.sim import run as runs
from specfleet.sim.fast import run
from tests.helpers.stars import star

ON_TARGET = {"drafters": {"place": "target"}, "workload": {"streams": 8, "requests": 200}}
SCENARIOS = [star(workload={"requests": 40}), star(**ON_TARGET)]


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of some hundred rows, of a simulation that counts as long."""
    monkeypatch.setattr(runs, "RECORDED_TOKENS", 10)
    monkeypatch.setattr(run, "KEPT", 300)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_file_in_parts_has_the_rows_and_metrics(scenario: Any, tmp_path: Path) -> None:
    file, kept = tmp_path / "run.parquet", specfleet.simulate(scenario, path="fast", records=True)
    written = specfleet.simulate(scenario, path="fast", records=str(file))
    assert pq.ParquetFile(file).metadata.num_row_groups > 4
    assert read_run(file).digest() == written.run.digest() == kept.run.digest()
    assert written.run.header.rows == kept.run.header.rows
    assert f"rows in {file}" in written.title()
    assert str(written.metrics) == str(specfleet.simulate(scenario, path="fast", records=False).metrics)
    assert str(written.targets()) == str(kept.targets())


def test_a_part_is_gone_before_the_next_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take, parts, alive = RunWriter.take, list[weakref.ref[pa.Table]](), list[int]()

    def watched(writer: RunWriter, rows: pa.Table) -> None:
        alive.append(sum(part() is not None for part in parts))
        parts.append(weakref.ref(rows))
        take(writer, rows)

    monkeypatch.setattr(RunWriter, "take", watched)
    specfleet.simulate(SCENARIOS[0], path="fast", records=tmp_path / "run.parquet")
    assert len(alive) > 4
    assert max(alive) == 0


@pytest.mark.parametrize(("error", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError, OutputError)])
def test_what_ends_a_simulation_leaves_the_earlier_file(
    error: type[BaseException], raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, parts = run.EventTable.rows, list[int]()

    def failing(*arguments: Any) -> pa.Table:
        parts.append(1)
        if len(parts) == 3:
            raise error
        return rows(*arguments)

    monkeypatch.setattr(run.EventTable, "rows", failing)
    (tmp_path / "run.parquet").write_text("earlier")
    with pytest.raises(raised):
        specfleet.simulate(SCENARIOS[0], path="fast", records=tmp_path / "run.parquet")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("run.parquet", "earlier")]


def test_records_of_few_tokens_are_kept_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RECORDED_TOKENS", 10**6)
    for path in ("simpy", "fast"):
        result = specfleet.simulate(SCENARIOS[0], path=path, records=tmp_path / "run.parquet")
        assert read_run(tmp_path / "run.parquet").digest() == result.run.digest()
        assert f"digest {result.run.digest()}" in result.title()
