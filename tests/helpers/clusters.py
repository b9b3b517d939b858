"""Small dask clusters on this host, started by the documented commands, and calls for their workers."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.helpers.processes import eventually, start


class LocalCluster(NamedTuple):
    """The address of a scheduler, and the processes of it and of its workers."""

    address: str
    scheduler: subprocess.Popen[str]
    workers: list[subprocess.Popen[str]]


@contextmanager
def local_cluster(
    folder: Path, workers: int = 2, env: Mapping[str, str] | None = None, worker: Sequence[str] = ()
) -> Iterator[LocalCluster]:
    """Start a scheduler and workers in an empty working folder; kill them afterwards.

    `worker`: options of a single worker's command, which may start several processes.
    """
    processes: list[subprocess.Popen[str]] = []
    (folder / "elsewhere").mkdir(parents=True)

    def dask(what: str, *arguments: str) -> Path:
        log = folder / f"{len(processes)}.log"
        with log.open("w") as output:
            words = ["-m", "dask", what, *arguments, "--no-dashboard"]
            more = {"stdout": output, "stderr": output, "cwd": folder / "elsewhere"}
            processes.append(start(*words, env=env, **more))
        return log

    def says(log: Path, what: str) -> str:
        assert eventually(lambda: re.search(what, log.read_text()) is not None), log.read_text()
        found = re.search(what, log.read_text())
        assert found is not None
        return found[1]

    try:
        address = says(dask("scheduler", "--host", "127.0.0.1", "--port", "0"), r"Scheduler at: +tcp://(\S+)\n")
        options = worker or ["--no-nanny", "--nthreads", "1"]
        more = ["--host", "127.0.0.1", "--local-directory", str(folder)]
        for log in [dask("worker", address, *options, *more) for _ in range(1 if worker else workers)]:
            says(log, r"(Registered to)")
        yield LocalCluster(address, processes[0], processes[1:])
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def double(number: int, _places: Mapping[str, str]) -> int:
    """Return twice a number."""
    return 2 * number


def double_where_possible(number: int, marker: Path, places: Mapping[str, str]) -> int:
    """Return twice a number; the first worker that gets 3 is killed."""
    if number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return double(number, places)


def double_but_for_3(number: int, _marker: Path, places: Mapping[str, str]) -> int:
    """Return twice a number; every worker that gets 3 dies."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return double(number, places)


def given_up(number: int, *_more: object) -> str:
    """Return the placeholder of a missing result."""
    return f"no double of {number}"
