"""Files carry their format; another format is refused in a line that says what to do."""

import hashlib
import json
from pathlib import Path

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.format import FORMAT
from specfleet.fleet.records.run import read_run, write_run, writing_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.times.profile import read_profile
from specfleet.sim.run import simulate
from tests.helpers.stars import star

OLD = f"written by specfleet format {FORMAT - 1}, this is {FORMAT}: "


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.parquet"
    write_run(simulate(star(workload={"requests": 1})), file)
    table = pq.ParquetFile(file).read()
    header = msgspec.json.decode(table.schema.metadata[b"specfleet"])
    assert header.pop("version") == FORMAT  # runs of the format before have none
    metadata = table.schema.metadata | {b"specfleet": msgspec.json.encode(header)}
    pq.write_table(table.replace_schema_metadata(metadata), file)
    with pytest.raises(InputError, match=f"{OLD}run it again"):
        read_run(file)


def test_a_run_with_a_rule_of_an_absent_package_names_it(tmp_path: Path) -> None:
    rule, file = {"verifiers": {"allocate": {"policy": "fixed", "depth": 2}}}, tmp_path / "run.parquet"
    write_run(simulate(star(workload={"requests": 1}, **rule)), file)
    table = pq.ParquetFile(file).read()
    header = table.schema.metadata[b"specfleet"].replace(b'"policy":"fixed"', b'"policy":"halve"')
    pq.write_table(table.replace_schema_metadata(table.schema.metadata | {b"specfleet": header}), file)
    with pytest.raises(InputError, match=r"verifiers\.allocate = 'halve': install the package that has this rule"):
        read_run(file)


def test_the_seal_of_a_run_is_that_of_its_parts(tmp_path: Path) -> None:
    run = simulate(star(workload={"requests": 2}))
    with writing_run(tmp_path / "parts.parquet") as file:
        for first in range(0, len(run.table), 7):
            file.take(run.table.slice(first, 7))
        assert file.end(msgspec.structs.replace(run.header, rows={})) == run.header
    write_run(run, tmp_path / "whole.parquet")
    parts, whole = (pq.ParquetFile(tmp_path / f"{name}.parquet").metadata for name in ("parts", "whole"))
    assert (parts.num_row_groups > 5, whole.num_row_groups) == (True, 1)
    assert parts.metadata[b"specfleet-digest"] == whole.metadata[b"specfleet-digest"]
    assert read_run(tmp_path / "parts.parquet").digest() == run.digest()


def test_a_run_with_the_former_seal_is_read_and_changes_show(tmp_path: Path) -> None:
    run, file, header = simulate(star(workload={"requests": 1})), tmp_path / "run.parquet", b"specfleet"
    metadata = {header: msgspec.json.encode(run.header)}
    metadata[b"specfleet-digest"] = hashlib.sha256(metadata[header] + run.digest().encode()).hexdigest().encode()
    pq.write_table(run.table.replace_schema_metadata(metadata), file)
    assert read_run(file).digest() == run.digest()
    changed = run.table.set_column(0, "time_s", pc.add(run.table["time_s"], 1.0))
    pq.write_table(changed.replace_schema_metadata(metadata), file)
    with pytest.raises(InputError, match="not those that were written"):
        read_run(file)


def test_a_profile_of_another_format_is_refused(tmp_path: Path) -> None:
    content = json.loads(shipped_files("profiles")["a100"].read_text())
    (tmp_path / "old.json").write_text(json.dumps(content | {"version": FORMAT - 1, "turnaround_s": 0.1}))
    with pytest.raises(InputError, match=f"{OLD}calibrate again"):
        read_profile("old.json", tmp_path)


def test_a_scenario_of_another_format_is_refused() -> None:
    assert make_scenario({}) == make_scenario({"version": FORMAT})
    with pytest.raises(InputError, match=f"{OLD}bring its keys up to date"):
        make_scenario({"version": FORMAT - 1, "old": 1})
