"""More than one machine: shards of cells, and a Dask cluster, give what one machine gives; what dies loses nothing."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from specfleet import plan, reproduce
from specfleet.experiments import jobs
from specfleet.experiments.jobs import as_finished, code, side_by_side
from specfleet.experiments.plan import search
from specfleet.experiments.reproduce import every
from specfleet.experiments.sweep import sweep as sweeps
from specfleet.fleet.errors import InputError, NodeDiedError
from tests.experiments.test_sweep import swept
from tests.helpers.processes import eventually, start

COUNTS = [1, 2, 3, 4, 5]


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Iterator[list[tuple[Any, ...]]]:
    called, call = list[tuple[Any, ...]](), getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: called.append(given) or call(*given))
    yield called


def test_shards_and_a_merging_run_give_the_whole_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = swept(COUNTS, tmp_path / "whole")
    shares = [swept(COUNTS, tmp_path / "out", shard=jobs.read_shard(f"{number}/2", "out")) for number in (2, 1)]
    assert [[result.cell["verifiers.count"] for result in share] for share in shares] == [[2, 4], [1, 3, 5]]
    assert not (tmp_path / "out" / "sweep.csv").exists()
    with counted(monkeypatch, sweeps, "run_cell") as ran:
        assert repr(swept(COUNTS, tmp_path / "out")) == repr(whole)
    assert ran == []
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "-1/2", "a/b"])
def test_a_shard_says_how_it_is_written(text: str) -> None:
    with pytest.raises(InputError, match=f"^--shard {text}: write I/N"):
        jobs.read_shard(text, "out")


def test_a_shard_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--out"):
        reproduce("all", shard="1/2")
    with pytest.raises(InputError, match="only all has --out"):
        reproduce("starsd-fig6", out=tmp_path)


def test_shards_of_a_plan_leave_the_answer_little_to_simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"vary": ["verifiers.count=1:2", "drafters.depth=3"], "jobs": 1}
    with counted(monkeypatch, search, "simulated") as called:
        whole = plan("star", {"workload.new_tokens": 16}, **asked)
        alone = len(called)
        for number in (1, 2):
            plan("star", {"workload.new_tokens": 16}, **asked, out=tmp_path, shard=f"{number}/2")
        of_shards = len(called) - alone
        merged = plan("star", {"workload.new_tokens": 16}, **asked, out=tmp_path)
    assert (merged.lines, merged.rows) == (whole.lines, whole.rows)
    assert len(called) - alone - of_shards < alone / 2
    with pytest.raises(InputError, match="give no more shards"):
        plan("star", **asked, out=tmp_path, shard="9/9")


def test_a_kept_reproduction_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        every, "REPRODUCTIONS", {name: every.REPRODUCTIONS[name] for name in ("starsd-fig6", "starsd-table2")}
    )
    whole = reproduce("all")
    with counted(monkeypatch, every, "made") as called:
        for shard in ("1/2", "2/2", ""):
            merged = reproduce("all", out=tmp_path, shard=shard)
    assert [name for name, _ in called] == ["starsd-fig6", "starsd-table2"]
    assert repr(merged.rows) == repr(whole.rows)


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    assert list(side_by_side(abs, [(-1,), (-2,)], 1, places, int)) == [1, 2]
    places[0].write_bytes(b"\xc1")
    assert list(side_by_side(abs, [(-3,), (-4,)], 1, places, int)) == [3, 2]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        yield cluster.scheduler_address


def test_a_cluster_gives_the_files_of_one_machine(tmp_path: Path, address: str) -> None:
    here, there = swept(COUNTS, tmp_path / "here"), swept(COUNTS, tmp_path / "there", workers=address)
    assert repr(there) == repr(here)
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_results_of_a_cluster_are_in_order_where_asked(address: str) -> None:
    numbers = [(-number,) for number in range(200)]
    assert dict(as_finished(abs, numbers, address)) == {number: number for number in range(200)}
    assert list(side_by_side(abs, numbers, address)) == list(range(200))


def refuse(number: int) -> int:
    raise InputError(f"{number} is refused")


def test_an_error_of_a_call_is_raised_here(address: str) -> None:
    with pytest.raises(InputError, match=r"^1 is refused$"):
        list(as_finished(refuse, [(1,)], address))


def die_of(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number


def test_a_call_that_kills_workers_loses_no_other(address: str, caplog: pytest.LogCaptureFixture) -> None:
    results = list[tuple[int, int]]()
    with pytest.raises(NodeDiedError, match=r"workers die of 3; what is done is kept"):
        results.extend(as_finished(die_of, [(number,) for number in (3, 4, 5)], address))
    assert sorted(results) == [(1, 4), (2, 5)]
    assert {record.message.partition(" tcp")[0] for record in caplog.records} == {"worker"}


def test_a_killing_call_in_a_group_loses_no_other(address: str) -> None:
    results = list[tuple[int, int]]()
    with pytest.raises(NodeDiedError, match=r"workers die of 3; what is done is kept"):
        results.extend(as_finished(die_of, [(number,) for number in (*range(4, 54), 3, 4, 5)], address))
    assert sorted(place for place, _ in results) == [*range(50), 51, 52]


@pytest.mark.parametrize(("group_s", "most"), [(10.0, 64), (0.0, 1)])
def test_only_short_calls_share_a_task(
    address: str, monkeypatch: pytest.MonkeyPatch, group_s: float, most: int
) -> None:
    sizes, mapped = list[int](), import_module("distributed").Client.map
    monkeypatch.setattr("specfleet.experiments.cluster.GROUP_S", group_s)
    monkeypatch.setattr(
        "distributed.Client.map", lambda *given, **how: sizes.extend(map(len, given[3])) or mapped(*given, **how)
    )
    assert len(dict(as_finished(abs, [(number,) for number in range(300)], address))) == sum(sizes) == 300
    assert max(sizes) == most


def test_a_worker_with_other_code_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specfleet.experiments.cluster.code", lambda: "specfleet 0")
    with pytest.raises(InputError, match=rf"^worker tcp://\S+: has other code, {code()}; here: specfleet 0; install"):
        list(as_finished(abs, [(1,)], address))


def test_no_scheduler_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("specfleet.experiments.cluster.CONNECT_S", 0.5)
    with pytest.raises(InputError, match=r"^--cluster tcp://127.0.0.1:9: no scheduler answers there"):
        list(as_finished(abs, [(1,)], "tcp://127.0.0.1:9"))


def slowly(number: int) -> int:
    sleep(0.05)
    return number


def test_a_dead_scheduler_ends_in_a_line_with_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("specfleet.experiments.cluster.CONNECT_S", 2.0)
    file, path = tmp_path / "scheduler.json", {"PYTHONPATH": os.pathsep.join(sys.path)}
    common, quietly = ("--scheduler-file", file, "--no-dashboard"), {"stdout": -3, "stderr": -3}
    programs = [
        start("-m", f"distributed.cli.dask_{role}", *common, *more, env=path, **quietly)
        for role, more in (("scheduler", ("--port", "0")), ("worker", ("--nthreads", "1", "--no-nanny")))
    ]
    try:
        assert eventually(lambda: file.exists() and b"address" in file.read_bytes())
        running = as_finished(slowly, ((n,) for n in range(1000)), json.loads(file.read_text())["address"])
        assert len(list(islice(running, 5))) == 5
        programs[0].kill()
        with pytest.raises(NodeDiedError, match="what is done is kept; the same command goes on from there"):
            list(running)
    finally:
        for program in programs:
            program.kill()
            program.wait()
