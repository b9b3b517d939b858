"""A run is measured from its records alone: its workload's files are not read again, and may be gone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import assess, measure_targets
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of
from tests.helpers.stars import TABLES, star

ROWS = "".join(f"{n % 3 * 1.5 + 4 * n},{10 + n},{5 + 3 * n % 11}\n" for n in range(12))
FILES = {
    "trace.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n" + ROWS,
    "lengths.csv": "num_prefill_tokens,num_decode_tokens\n"
    + "".join(line.partition(",")[2] for line in ROWS.splitlines(keepends=True)),
}
TRACE = {"arrivals": {"process": "trace", "file": "trace.csv"}}
POISSON = {"arrivals": {"process": "poisson", "per_s": 0.05}}
LENGTHS = {"lengths": "lengths.csv"}
BESIDE = {"place": "target"}
REALIGN = {"count": 1, "max_num_seqs": 2, "aligned": {"policy": "realign"}}
WORKLOADS: dict[str, dict[str, Any]] = {"lengths": LENGTHS, "trace": TRACE, "arriving lengths": LENGTHS | POISSON}


def of(folder: Path, workload: dict[str, Any], requests: int, **tables: Any) -> Scenario:
    """A star, or the scenario of the tables, with that workload; its files are written into the folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    content = TABLES | {"workload": {"requests": requests} | workload, "measure": {"warm_up_share": 0.0}} | tables
    return make_scenario(content, base=folder)


def measured(run: Run) -> str:
    """All metrics as text: NaN equals NaN."""
    return f"{assess(run)} {measure_targets(run).to_dict()}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_runs_are_measured_without_their_workload_file(name: str, tmp_path: Path) -> None:
    run = simulate(of(tmp_path, WORKLOADS[name], requests=30))
    before = measured(run)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        streams_of(run.header.fleet)
    assert measured(run) == before


@settings(max_examples=40)
@given(
    workload=st.sampled_from([{"new_tokens": 8}, LENGTHS]),
    requests=st.integers(1, 20),
    targets=st.integers(1, 3),
    streams=st.integers(0, 5),
    is_aligned=st.booleans(),
)
def test_last_requests_of_streams_match_the_workload(
    tmp_path_factory: pytest.TempPathFactory,
    workload: dict[str, Any],
    requests: int,
    targets: int,
    streams: int,
    is_aligned: bool,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    more = {"drafters": BESIDE, "verifiers": REALIGN} if is_aligned else {"verifiers": {"count": targets}}
    run = simulate(of(folder, workload | {"streams": streams}, requests, **more))
    assert ends_in(run) == (ends_of(run) if run.header.fleet.streams else set())


@settings(max_examples=20)
@given(share=st.floats(0.01, 1.0), requests=st.integers(1, 9))
def test_truncated_runs_end_with_their_newest_requests(share: float, requests: int) -> None:
    """The scenario gives their number; the last one of a stream need not be complete."""
    rows = simulate(scenario := star(workload={"requests": requests, "new_tokens": 8})).frame()
    some = rows[: int(np.ceil(share * len(rows)))]
    cut = make_run(scenario, "sim", log_of(some.to_numpy()), resolve(scenario))
    known = findings_of(cut).requests
    there = set(zip(known.tag.tolist(), known.request.tolist(), strict=True))
    assert ends_in(cut) == ends_of(cut) & there


def ends_in(run: Run) -> set[tuple[int, int]]:
    """Stream and number of requests that are the last of their streams, from records."""
    requests = findings_of(run).requests
    last = requests.where(requests.last)
    return set(zip(last.tag.tolist(), last.request.tolist(), strict=True))


def ends_of(run: Run) -> set[tuple[int, int]]:
    """The same from the workload's files."""
    return {(tag, of_stream[-1].number) for tag, of_stream in streams_of(run.header.fleet).items()}
