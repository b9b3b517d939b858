"""The page on watching is true: its commands do what they say."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.marks import slow
from tests.helpers.processes import ended, specfleet

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "watching.md"
FEW = ("--set", "workload.requests=4", "--set", "workload.new_tokens=16")


def commands() -> dict[str, list[str]]:
    """The page's commands, by their first word; each is there once or twice."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for line in "".join(text for language, text in blocks if not language).splitlines():
        assert line.startswith("specfleet "), line
        found.setdefault(line.split()[1], []).append(line.removeprefix("specfleet "))
    return found


def test_commands_of_the_page_are_found() -> None:
    counts = {"run": 2, "sweep": 1, "figure": 1}
    assert {name: len(lines) for name, lines in commands().items()} == counts


@pytest.mark.parametrize("number", [slow(0), slow(1)])
def test_runs_of_the_page_print_no_progress_without_terminal(number: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    line = commands()["run"][number]
    words = [*line.split(), *FEW, "--json"]
    status, out, err = ended(specfleet(*words, cwd=tmp_path))
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
