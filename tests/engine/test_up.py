"""A fleet of nodes on one host: the commands of each topology, their ends, and what a failed node leaves."""

import re
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from engine.launch.up import commands_of
from fleet.records.run import read_run
from fleet.scenario.reading import scenario_of
from fleet.scenario.resolve import resolve
from tests.helpers.processes import ended, start

REPLAYED = ["--set", "drafters.kind=replayed", "--set", "verifiers.kind=replayed", "--set", "profile=a100"]


def test_targets_call_the_drafters_or_their_router() -> None:
    star = commands_of(resolve(scenario_of("star", {"verifiers.count": 2})), "star")
    assert list(star) == ["drafter", "verifier.1", "verifier.2"]
    port = star["drafter"][-1]
    assert star["verifier.2"] == ["verifier", "star", "--connect", f"127.0.0.1:{port}", "--target", "2"]
    routed = commands_of(resolve(scenario_of("m-for-n", {"drafters.count": 2, "verifiers.count": 1})), "m.toml")
    assert list(routed) == ["drafter.1", "drafter.2", "router", "verifier.1"]
    ports = [routed[name][-1] for name in ("drafter.1", "drafter.2")]
    assert routed["router"][3] == ",".join(f"127.0.0.1:{port}" for port in ports)
    assert routed["verifier.1"][3] == f"127.0.0.1:{routed['router'][-1]}"
    replayed = commands_of(resolve(scenario_of("inter-node")), "inter-node")
    assert replayed["verifier"][-1] == "1-6"
    assert next(iter(commands_of(resolve(scenario_of("star", {"drafters.count": 0})), "star"))) == "verifier.1"


@pytest.mark.slow
def test_all_nodes_write_their_records(tmp_path: Path) -> None:
    changes = [*REPLAYED, "--set", "workload.requests=8", "--set", "verifiers.count=2"]
    status, _, err = ended(start("-m", "specfleet", "up", "star", *changes, "-o", tmp_path))
    assert status == 0, err
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{node}.{kind}" for node in ("drafter", "verifier") for kind in ("log", "parquet")
    }
    runs = [read_run(file) for file in tmp_path.glob("*.parquet")]
    assert all(run.header.rows for run in runs)


@pytest.mark.slow
def test_a_failed_node_ends_the_fleet_in_one_line(tmp_path: Path) -> None:
    status, _, err = ended(start("-m", "specfleet", "up", "star", "--set", "workload.prompts=no.jsonl", "-o", tmp_path))
    assert status in (1, 2)
    assert re.fullmatch(r"specfleet: .*no\.jsonl.*", err.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_nodes_and_keeps_their_records(number: int, tmp_path: Path) -> None:
    process = start("-m", "specfleet", "up", "star", *REPLAYED, "--set", "workload.requests=100000", "-o", tmp_path)
    limit_s = time.monotonic() + 60
    while "drafts come from" not in "".join(file.read_text() for file in tmp_path.glob("verifier.log")):
        assert time.monotonic() < limit_s
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(number)
    status, _, err = ended(process)
    assert status == 128 + number, err
    assert "kept: 4 files" in err
    assert all(read_run(file).header.rows for file in tmp_path.glob("*.parquet"))
