"""The page on watching is true: it names every metric, and its commands do what they say."""

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from specfleet.experiments.watching.page import FAMILIES
from tests.helpers.marks import slow
from tests.helpers.processes import ended, eventually, specfleet

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "watching.md"
FEW = ("--set", "workload.requests=4", "--set", "workload.new_tokens=16")


def rows() -> dict[str, str]:
    """Kinds by name, of the table of metrics."""
    return dict(re.findall(r"^\| `([\w:]+)` \| (gauge|counter|histogram) \|", PAGE.read_text(), flags=re.MULTILINE))


def test_the_page_lists_exactly_the_exported_metrics() -> None:
    assert rows() == {family.name: family.kind for family in FAMILIES}


def commands() -> dict[str, list[str]]:
    """The page's commands, by their first word; each is there once or twice."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for line in "".join(text for language, text in blocks if not language).splitlines():
        assert line.startswith("specfleet "), line
        found.setdefault(line.split()[1], []).append(line.removeprefix("specfleet "))
    return found


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture
def ports() -> dict[str, str]:
    """Ports that are free, for those of the page."""
    return {"5555": free_port(), "9100": free_port()}


def started(line: str, ports: dict[str, str], folder: Path, *more: str) -> subprocess.Popen[str]:
    for there, here in ports.items():
        line = line.replace(there, here)
    return specfleet(*line.split(), *more, cwd=folder)


def test_commands_of_the_page_are_found() -> None:
    counts = {"run": 2, "drafter": 1, "verifier": 1, "sweep": 1, "figure": 1}
    assert {name: len(lines) for name, lines in commands().items()} == counts


@pytest.mark.slow
def test_commands_of_the_page_show_a_running_fleet(ports: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import urllib.request

    page = commands()
    drafter = started(page["drafter"][0], ports, tmp_path, *FEW)
    try:
        first_said = drafter.stderr.readline()
        assert first_said.startswith("drafter: replayed, depth 5, for this host alone, without keys; public port ")
        verifier = started(page["verifier"][0], ports, tmp_path, *FEW)
        status, _, err = ended(verifier)
        assert status == 0
        assert err.endswith("\ntarget 1: done\n")

        def is_counted() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports['9100']}/metrics") as answer:
                text = answer.read().decode()
            return re.search(r'^specfleet_rounds_total{target="1"} [1-9]', text, re.MULTILINE) is not None

        assert eventually(is_counted, drafter)
        lines = [drafter.stderr.readline().rstrip() for _ in range(2)]
    finally:
        drafter.terminate()
        ended(drafter)
    assert re.fullmatch(r"drafter: target 1 \(127\.0\.0\.1:\d+\) joins", lines[0])
    assert re.fullmatch(r"drafter: target 1 \(127\.0\.0\.1:\d+\) is gone: it has ended", lines[1])


@pytest.mark.parametrize("number", [slow(0), slow(1)])
def test_runs_of_the_page_print_no_progress_without_terminal(
    number: int, ports: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    line = commands()["run"][number]
    status, out, err = ended(started(line, ports, tmp_path, *FEW, "--set", "verifiers.count=2", "--json"))
    assert status == 0
    metrics = json.loads(out)["metrics"]
    assert metrics["throughput"]["value"] > 0
    assert "rounds," not in err
    if "--power" in line:
        measured = "energy was not measured" not in err
        assert (tmp_path / "power.parquet").exists() == measured
        assert ("measured_energy_j_per_token" in metrics) == measured


@pytest.mark.slow
def test_the_figure_of_the_page_has_samples_or_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    line, drawn = commands()["sweep"][0].replace("1:8", "1"), commands()["figure"][0]
    status, _, err = ended(specfleet(*line.split(), "--seeds", "1", *FEW, cwd=tmp_path))
    assert status == 0, err
    status, _, err = ended(specfleet(*drawn.split(), cwd=tmp_path))
    assert (tmp_path / "power.png").exists() == (status == 0)
    assert status == 0 or "figure devices: no cell has samples" in err
