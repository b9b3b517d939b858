"""docs/by-hand.md: its commands, as they stand there, form the fleets that it says.

Hosts are network namespaces, or addresses of this host alone where it permits none.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

from specfleet.fleet.records.join import Joined, join_runs
from specfleet.fleet.records.playback import ways_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import read_run
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.build import stations
from tests.helpers.namespaces import Hosts, NotPermittedError
from tests.helpers.plain import plain_outputs
from tests.helpers.processes import ROOT, ended, start

PAGE = (ROOT / "docs" / "by-hand.md").read_text()
HOSTS = ("alpha", "beta", "gamma", "delta")
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
STUBS = {  # hosts are folders beside each other
    "specfleet": 'exec "$PYTHON" -m specfleet "$@"',
    "ssh": 'host=$1; shift; cd "$HOSTS/$host" && exec "$@"',
    "scp": 'for last; do :; done; case $last in *:*) to="$HOSTS/${last%%:*}/${last#*:}";; *) to=$last;; esac\n'
    'while [ $# -gt 1 ]; do case $1 in *:*) from="$HOSTS/${1%%:*}/${1#*:}";; *) from=$1;; esac; cp "$from" "$to"; '
    "shift; done",
}


def commands_of(text: str) -> list[tuple[str, str]]:
    """Hosts and commands of the `console` blocks."""
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [(host, command.strip()) for host, command in (line.split("$", 1) for line in lines)]


@pytest.fixture(scope="module")
def network() -> Iterator[Callable[[str], tuple[str, list[str]]]]:
    """The address of a host, and what starts a command there."""
    try:
        namespaces = Hosts(len(HOSTS))
    except NotPermittedError:
        mine = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}"  # that no other test has
        yield lambda host: (f"{mine}.{HOSTS.index(host) + 1}", [])
        return
    with namespaces:
        numbers = {host: number for number, host in enumerate(HOSTS, 1)}
        yield lambda host: (namespaces.address(numbers[host]), namespaces.on(numbers[host]))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each host, with the keys that the page's first commands make."""
    folder = tmp_path_factory.mktemp("hosts")
    programs = folder / "programs"
    programs.mkdir()
    for name, script in STUBS.items():
        (programs / name).write_text(f"#!/bin/sh -e\n{script}\n")
        (programs / name).chmod(0o755)
    for host in HOSTS:
        (folder / host).mkdir()
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "HOSTS": str(folder)}
    environment |= {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    for host, command in commands_of(PAGE.split("\n## ")[0]):
        subprocess.run(["/bin/sh", "-ec", command], cwd=folder / host, env=environment, check=True, timeout=300)
    return folder


def test_every_host_has_its_secret_and_all_public_keys(hosts: Path) -> None:
    for host in HOSTS:
        names = {path.name for path in (hosts / host / "keys").iterdir()}
        assert names == {f"{host}.secret", *(f"{other}.public" for other in HOSTS)}


def test_the_page_has_every_way_to_form_a_fleet() -> None:
    assert len(SECTIONS) == 6
    for title, text in SECTIONS.items():
        assert len(commands_of(text)) >= 2, title


def clock_error(joined: Joined) -> float:
    return 2 * max(clock.error_s for clock in joined.clocks)


@pytest.mark.slow
@pytest.mark.parametrize("title", SECTIONS)
def test_the_commands_of_a_section_form_its_fleet(
    title: str, hosts: Path, network: Callable[[str], tuple[str, list[str]]], tmp_path: Path
) -> None:
    """Started in the other order, the targets first; texts are those of plain decoding, records whole and replayed."""
    (scenario,) = re.findall(r"```toml\n(.*?)```", SECTIONS[title], re.DOTALL)
    for host in HOSTS:
        (hosts / host / "fleet.toml").write_text(f'{scenario}precision = "float64"\n')
    started: list[tuple[str, subprocess.Popen[str]]] = []
    records = []
    for host, command in reversed(commands_of(SECTIONS[title])):
        program, group, node, *words = shlex.split(command)
        assert (program, group) == ("specfleet", "node")
        words = [re.sub(r"\b(\w+):(?=\d)", lambda match: f"{network(match[1])[0]}:", word) for word in words]
        records.append(tmp_path / f"{len(records)}.parquet")
        address, on = network(host)
        port = {"drafter": 5555, "router": 5554}.get(node)
        own = [] if port is None else ["--at", f"{address}:{port}"]  # else it would take that port of all addresses
        program = ["-m", "tests.helpers.printed_texts", "node", node, *words, *own, "-o", records[-1]]
        started.append((node, start(*program, cwd=hosts / host, before=on)))
    texts: dict[int, list[int]] = {}
    for node, process in started:
        if node == "target":
            status, printed, err = ended(process)
            assert status == 0, err
            assert "done\n" in err
            texts |= {int(request): text for request, text in json.loads(printed).items()}
    for node, process in started:
        if node != "target":
            process.send_signal(signal.SIGINT)
            status, _, err = ended(process)
            assert status == 128 + signal.SIGINT, err
    read = read_scenario(hosts / "alpha" / "fleet.toml")
    fleet = resolve(read)
    if read.verifiers.kind != "replayed" and not read.workload.temperature:
        assert texts == plain_outputs(read)
    runs = [read_run(record) for record in records]
    assert [replay(run) for run in runs] == [[]] * len(runs)
    frames = [run.frame() for run in runs]
    busy, drafters = {station for frame in frames for station in frame.station}, fleet.drafter_names
    assert busy <= set(stations(fleet))
    assert set(stations(fleet)) - busy <= set(drafters if fleet.routed else ())  # where the other one was always free
    assert busy & set(drafters)
    assert not any((frame.event == "refusal").any() for frame in frames)
    if title != "M drafters for N targets":  # they fall apart into stars that exchange nothing
        joined = join_runs(list(zip(map(str, records), runs, strict=True)))
        assert replay(joined.run) == []
        assert all(way.arrived_s > way.left_s - clock_error(joined) for way in ways_of(joined.run))
    complete = {request for frame in frames for request in frame.query("event == 'join'").request}
    assert complete == set(range(fleet.workload.requests))
