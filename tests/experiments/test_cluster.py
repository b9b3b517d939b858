"""Sweeps on a cluster: the table of one process, whatever becomes of workers; refusals in one line."""

import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("distributed", reason="a cluster needs dask: pip install 'specfleet[cluster]'")

from experiments.sweep.cell import CellResult
from experiments.sweep.cluster import connect, parcels, send
from experiments.sweep.cluster.cells import paths_of
from experiments.sweep.cluster.parcels import Parcel, laid_out, run_chunk, unlike, versions
from experiments.sweep.cluster.send import on_cluster
from experiments.sweep.sweep import cells_of, sweep
from fleet.errors import ClusterError, InputError
from fleet.scenario.reading import read_scenario
from tests.experiments.test_sweep import FILES, SCENARIO
from tests.helpers.clusters import (
    LocalCluster,
    double,
    double_but_for_3,
    double_where_possible,
    given_up,
    local_cluster,
)
from tests.helpers.marks import slow
from tests.helpers.processes import ROOT, alive, eventually
from tests.helpers.stars import star

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

SHORT = {"requests": 8}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as of_two:
        yield of_two


def cells(count: int, **more: Any) -> list[tuple[dict[str, Any], Any]]:
    return [(cell, star(seed=cell["seed"], **more)) for cell in cells_of({"seed": range(count)})]


def kept(folder: Path) -> dict[str, bytes]:
    """Everything that a sweep leaves in its folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_killed_worker_does_not_change_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[Any] = []
    some = cells(40, workload=SHORT)
    monkeypatch.setattr(send, "MOST_CALLS", 2)  # so that four chunks of eight cells are on their way
    with local_cluster(tmp_path / "cluster") as two:

        def done(result: CellResult) -> None:
            finished.append(result.cell["seed"])
            if len(finished) == 5:
                two.workers[0].send_signal(signal.SIGKILL)

        there = sweep(some, tmp_path / "there", seeds=2, done=done, cluster=two.address)
        assert two.workers[0].wait() == -signal.SIGKILL
        assert two.workers[1].poll() is None
    here = sweep(some, tmp_path / "here", seeds=2)
    assert sorted(finished) == list(range(40))
    assert msgspec.json.encode(there) == msgspec.json.encode(here)
    assert kept(tmp_path / "there") == kept(tmp_path / "here")


def test_a_call_of_a_killed_worker_runs_on_another(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "cluster") as two:
        calls = [Parcel((number, tmp_path / "marker")) for number in range(9)]
        results = list(on_cluster(double_where_possible, calls, two.address, given_up))
    assert sorted(results) == [(number, 2 * number) for number in range(9)]
    assert (tmp_path / "marker").exists()


@pytest.mark.slow
def test_a_call_that_kills_all_workers_fails_alone(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "cluster", 3, {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}) as three:
        calls = [Parcel((number, tmp_path / "marker")) for number in range(9)]
        results = dict(on_cluster(double_but_for_3, calls, three.address, given_up))
    assert results.pop(3) == "no double of 3"
    assert results == {number: 2 * number for number in range(9) if number != 3}


@pytest.mark.parametrize("name", [name if name == "lengths.csv" else slow(name) for name in FILES])
def test_workers_get_scenario_files_and_errors_name_the_originals(
    name: str, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers work in another folder. One of three files is broken, and one is not there."""
    monkeypatch.chdir(tmp_path)
    settings, put = FILES[name]
    good = Path("good", name)
    for place in ("good", "broken", "none"):
        Path(place).mkdir()
        Path(place, "mine.toml").write_text(SCENARIO)
    put(good, 40)
    Path("broken", name).write_bytes(good.read_bytes()[:7])
    places = ["good"] if name == "profile.json" else ["good", "broken", "none"]  # that one is part of the scenario
    some = [({"of": of}, read_scenario(Path(of, "mine.toml"), settings)) for of in places]
    if len(some) > 1:
        assert [paths_of(scenario) for _, scenario in some] == [(f"{of}/{name}",) for of in places]
    there = sweep(some, tmp_path / "there", seeds=1, cluster=cluster.address)
    here = sweep(some, tmp_path / "here", seeds=1)
    assert msgspec.json.encode(there[0]) == msgspec.json.encode(here[0])
    assert [result.error for result in there] == [result.error.replace(f"{tmp_path}/", "") for result in here]
    assert [bool(result.error) for result in there] == [False, True, True][: len(some)]


def test_what_was_finished_is_found_by_a_sweep_anywhere(cluster: LocalCluster, tmp_path: Path) -> None:
    sweep(cells(2, workload=SHORT), tmp_path, cluster=cluster.address)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    for address in ("", cluster.address):
        sweep(cells(4, workload=SHORT), tmp_path, cluster=address)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_nothing_is_sent_where_nothing_is_missing() -> None:
    assert list(on_cluster(double, [], "nowhere:1", given_up)) == []


def test_a_long_chunk_returns_with_finished_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "CHUNK_S", -1.0)
    assert run_chunk(double, [(1,), (2,)], versions(), {}).results == [2]
    monkeypatch.setattr(parcels, "CHUNK_S", 3600.0)
    assert run_chunk(double, [(1,), (2,)], versions(), {}).results == [2, 4]


def test_chunks_that_come_back_unfinished_lose_and_repeat_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender tears the chunk, as a worker without time left does."""
    original = send.Sending._answer
    torn = iter([True, False] * 1000)

    def half(self: send.Sending, future: Any) -> Any:
        answer = original(self, future)
        return answer._replace(results=answer.results[: -(-len(answer.results) // 2)]) if next(torn) else answer

    monkeypatch.setattr(send.Sending, "_answer", half)
    results = list(on_cluster(double, [Parcel((number,)) for number in range(100)], cluster.address, given_up))
    assert sorted(results) == [(number, 2 * number) for number in range(100)]


def test_files_keep_their_names_and_lie_where_they_lay_before(tmp_path: Path) -> None:
    files = {"here/a.csv": ("12ab", b"one"), "there/a.csv": ("34cd", b"two")}
    places = laid_out(files, tmp_path)
    assert {path: Path(place).read_bytes() for path, place in places.items()} == {
        "here/a.csv": b"one",
        "there/a.csv": b"two",
    }
    assert {Path(place).name for place in places.values()} == {"a.csv"}
    assert laid_out(files, tmp_path) == places


@pytest.mark.slow
def test_the_documented_cluster_starts_and_restarts_killed_workers(tmp_path: Path) -> None:
    lines = re.findall(r"^\w+\$ +dask (\w+) *(.*?) +#", (ROOT / "docs" / "cluster.md").read_text(), re.MULTILINE)
    assert [what for what, _ in lines] == ["scheduler", "worker"]
    (_, of_scheduler), (_, of_worker) = lines
    assert of_scheduler == ""
    assert "dask worker HOST:8786 " + of_worker.removeprefix("alpha:8786 ") in connect.START
    some = cells(12, workload=SHORT)
    killed: set[int] = set()
    with local_cluster(tmp_path / "cluster", worker=of_worker.split()[1:]) as by_the_page:

        def done(_result: CellResult) -> None:
            killed.update(below(by_the_page.workers[0].pid)[:1] if not killed else [])
            for pid in killed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        there = sweep(some, seeds=1, done=done, cluster=by_the_page.address)
        assert eventually(lambda: len(below(by_the_page.workers[0].pid)) == os.cpu_count())
    assert len(killed) == 1
    assert msgspec.json.encode(there) == msgspec.json.encode(sweep(some, seeds=1))


def below(session: int) -> list[int]:
    """The processes of a session that take calls: each has a thread for them."""
    named = {pid: Path(f"/proc/{pid}/cmdline") for pid in alive(session) if pid != session}
    return [pid for pid, line in named.items() if "spawn_main" in line.read_text()]


# Refusals.


def refused(address: str, kind: type[Exception] = InputError) -> str:
    with pytest.raises(kind) as error:
        list(on_cluster(double, [Parcel((1,))], address, given_up))
    (line,) = str(error.value).splitlines()
    return line


@pytest.mark.parametrize("address", ["foo", "127.0.0.1:abc", "http://127.0.0.1:80", ":", ":80", "host:", "inproc://1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    assert refused(address) == f"--cluster {address}: allowed: HOST:PORT, tcp://HOST:PORT and tls://HOST:PORT"


@pytest.mark.parametrize("address", ["127.0.0.1:9", "tls://127.0.0.1:9", "127.0.0.1:99999", f"{300 * 'x'}:80"])
def test_a_missing_scheduler_is_one_line_of_advice(address: str) -> None:
    line = refused(address)
    assert line.startswith(f"--cluster {address}: no dask scheduler answers there (")
    assert line.endswith("; " + connect.START)


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.9\r\n"])
def test_who_listens_and_is_no_scheduler_is_not_waited_for(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor() as threads:
        accepted = threads.submit(lambda: other.accept()[0])
        threads.submit(lambda: accepted.result().sendall(said))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"--cluster {address}: no dask scheduler answers there (" in refused(address)
        accepted.result().close()


def test_a_scheduler_without_workers_is_refused(tmp_path: Path) -> None:
    with local_cluster(tmp_path, workers=0) as none:
        assert refused(none.address) == f"--cluster {none.address}: has no worker; {connect.START}"


def test_workers_with_other_sources_are_refused_before_anything_runs(tmp_path: Path) -> None:
    """Another folder of the same version, in which one line is different."""
    other = tmp_path / "other"
    for package in ("specfleet", *parcels.SOURCES):
        shutil.copytree(ROOT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    (other / "sim" / "network.py").write_text((ROOT / "sim" / "network.py").read_text() + "# changed\n")
    with local_cluster(tmp_path, workers=1, env={"PYTHONPATH": str(other)}) as of_others:
        line = refused(of_others.address)
    assert re.fullmatch(
        rf"--cluster {of_others.address}: worker tcp://127.0.0.1:\d+ has sources \w+ \(here {versions()['sources']}\)",
        line,
    )


@pytest.mark.slow
def test_a_worker_without_us_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiments.py").write_text("raise ModuleNotFoundError(\"No module named 'experiments'\")")
    with local_cluster(tmp_path / "cluster", workers=1, env={"PYTHONPATH": str(tmp_path)}) as of_others:
        line = refused(of_others.address)
    assert re.search(
        r": worker tcp://127.0.0.1:\d+ cannot run us \(.*No module named '.*\); install the same ", line
    ), line


def test_a_worker_with_other_versions_that_comes_later_runs_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here our own version changes after all workers have answered."""
    older = versions() | {"python": "3.9.1", "specfleet": "0.0.1"}
    monkeypatch.setattr(send, "versions", lambda: older)
    said = f"has python {versions()['python']} (here 3.9.1), specfleet {versions()['specfleet']} (here 0.0.1)"
    assert refused(cluster.address, ClusterError) == f"cluster {cluster.address}: a worker that came later {said}"


def test_versions_are_those_of_sources_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An editable installation changes without its version."""
    assert set(versions()) >= {"python", "specfleet", "numpy", "sources"}
    before = parcels._sources()
    for package in parcels.SOURCES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("1")
    monkeypatch.setattr(parcels.resources, "files", tmp_path.joinpath)
    copy = parcels._sources()
    assert copy == parcels._sources() != before
    (tmp_path / "sim" / "one.py").write_text("2")
    assert copy != parcels._sources()


def test_versions_that_differ_are_named_with_ours() -> None:
    assert unlike({"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}) == ""
    assert unlike({"a": "1", "b": "2"}, {"a": "3"}) == "has a 3 (here 1), b missing (here 2)"


def test_without_dask_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert refused("127.0.0.1:1").endswith(" is not installed; --cluster needs it: pip install 'specfleet[cluster]'")


@pytest.mark.parametrize("part", ["scheduler", slow("workers")])
def test_a_lost_cluster_ends_in_one_line_with_earlier_results(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "ALONE_S", 0.5)
    finished: list[Any] = []
    with local_cluster(tmp_path / "cluster", workers=1 if part == "scheduler" else 2) as some:
        victims = [some.scheduler] if part == "scheduler" else some.workers

        def done(result: CellResult) -> None:
            finished.append(result.cell["seed"])
            for victim in victims:
                victim.kill()

        with pytest.raises(ClusterError) as error:
            sweep(cells(200, workload=SHORT), tmp_path / "out", done=done, cluster=some.address)
    assert str(error.value) in {
        f"cluster {some.address}: the scheduler is gone", f"cluster {some.address}: has had no worker for 0.5 s"
    }  # fmt: skip
    assert len(list((tmp_path / "out" / "cells").iterdir())) == len(finished) == len(set(finished)) < 200
