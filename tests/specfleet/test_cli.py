"""The command line as users meet it: what it prints, and the line and status that wrong input ends with."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from experiments.console.printing import print_table
from fleet.data.shipped import shipped_scenarios
from fleet.records.run import write_run
from sim.run import simulate
from tests.helpers.cli import run_cli
from tests.helpers.marks import slow
from tests.helpers.stars import star

ROOT = Path(__file__).parents[2]

MINIMAL = """
profile = "rtx-4090"
[acceptance]
model = "geometric"
beta = 0.8
[workload]
requests = 12
new_tokens = 24
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    return path


WRONG = {
    "unknown key": ("drafters.dept=3", ["drafters.dept", "3", "allowed:", "depth"]),
    "unknown table": ("drafter.depth=3", ["drafter", "allowed:", "drafters"]),
    "wrong type": ('drafters.depth="five"', ["drafters.depth", "'five'", "int"]),
    "N < 1": ("verifiers.count=0", ["verifiers.count", "0", ">= 1"]),
    "depth < 1": ("drafters.depth=0", ["drafters.depth", "0", ">= 1"]),
    "beta above one": ("acceptance.beta=1.5", ["acceptance.beta", "1.5", "<= 1"]),
    "beta below zero": ("acceptance.beta=-0.1", ["acceptance.beta", "-0.1", ">= 0"]),
    "unknown model of acceptance": ("acceptance.model=lucky", ["acceptance.model", "lucky", "beta-geometric"]),
    "missing parameter": ("acceptance={model='beta-geometric', a=1.0}", ["acceptance", "`b`"]),
    "unknown policy": ("drafters.order=lifo", ["drafters.order", "lifo", "fifo", "priority"]),
    "missing profile": ("profile=none.json", ["none.json", "rtx-4090", "jetson-orin"]),
    "unknown device": ("drafters.device=gpu7", ["drafters.device", "gpu7", "[devices.NAME]"]),
    "unknown sharing": ("devices.gpu.sharing=love", ["devices.gpu.sharing", "love", "turns", "contended"]),
    "no key": ("verifiers.count", ["verifiers.count", "KEY=VALUE"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_with_status_2(
    case: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, expected = WRONG[case]
    assert run_cli(monkeypatch, "simulate", str(file), "--set", change) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.strip()
    assert "\n" not in line
    for part in expected + ([] if case == "no key" else [str(file)]):
        assert part in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["simulate", "nowhere.toml"], "nowhere.toml: cannot be read (No such file or directory)"),
        (["analytic", "nowhere"], "no shipped scenario has that name; shipped: amusd, "),
        (["sweep", "star", "--vary", "drafters.dept=1:3", "-o", "x"], "unknown key drafters.dept = 1; allowed:"),
        (["simulate"], "name a SCENARIO, or a run with --of RUN"),
        (["analytic"], "Missing argument"),
        (["simulate", "x.toml", "--no-such-option"], "No such option"),
        (["reproduce", "starsd-table9"], "starsd-table1"),
        (["figure", "cubism", "x", "-o", "y"], "cubism: unknown; allowed:"),
        (["compare", "a.parquet", "b.parquet"], "a.parquet: cannot be read (No such file"),
    ],
)
def test_wrong_commands_end_with_status_2_and_one_line(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, *arguments) == 2
    line = capsys.readouterr().err.strip()
    assert expected in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "command",
    [
        "init LONG",
        "explain LONG",
        "show LONG",
        "reproduce LONG",
        "figure LONG x -o x.png",
        "figure timeline LONG -o x.png",
    ],
)
def test_whatever_is_typed_the_line_that_refuses_it_stays_short(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, *command.replace("LONG", "a" * 10_000).split()) == 2
    assert len(capsys.readouterr().err) < 1000


def test_a_missing_model_folder_is_named_before_anything_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert run_cli(monkeypatch, "run", str(file), "--set", "drafters.model=no/such/model") == 2
    line = capsys.readouterr().err.strip()
    assert "no/such/model" in line
    assert "\n" not in line


LONG = ("amusd", "dsde", "exspec", "goodspeed", "m-for-n")  # to simulate


@pytest.mark.parametrize("name", [slow(name) if name in LONG else name for name in shipped_scenarios()])
def test_shipped_scenarios_run_in_the_simulator(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "simulate", name, "--json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["metrics"]["throughput"]["value"] > 0


def test_a_failed_cell_loses_no_other_cell(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    # Acceptance was recorded at depth 5: nothing is known of depth 9.
    recorded = "acceptance={model = 'recorded', depth = 5, sessions = [[1, 5, 2], [0, 3]]}"
    options = ["--set", recorded, "--vary", "drafters.depth=2,9", "--seeds", "1", "--jobs", "1"]
    status = run_cli(monkeypatch, "sweep", str(file), "-o", str(out), *options)
    assert status == 1
    captured = capsys.readouterr()
    assert "1 of 2 cells failed" in captured.err
    errors = [json.loads(path.read_text())["error"] for path in sorted((out / "cells").glob("*.json"))]
    assert [bool(error) for error in errors] == [False, True]


def test_compare_ends_with_status_1_beyond_its_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = tmp_path / "fast.parquet", tmp_path / "slow.parquet"
    write_run(simulate(star()), fast)
    write_run(simulate(star(profile={"draft": {"base_s": 2.0}})), slow)
    assert run_cli(monkeypatch, "compare", str(fast), str(fast), "--json") == 0
    assert json.loads(capsys.readouterr().out)["mape"]["rounds_per_s"] == 0
    assert run_cli(monkeypatch, "compare", str(fast), str(slow), "--tolerance", "0.05") == 1
    assert "differ by more than 5.0%" in capsys.readouterr().err


@pytest.mark.slow
def test_a_complete_playback_prints_the_measured_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(simulate(star()), tmp_path / "run.parquet")
    printed = []
    for more in (["--play-back", "all", "--set", "seed=5"], []):  # constant times: steps and acceptance are all of it
        assert run_cli(monkeypatch, "simulate", "--of", str(tmp_path / "run.parquet"), *more, "--json") == 0
        printed.append(json.loads(capsys.readouterr().out)["metrics"]["throughput"]["value"])
    assert printed[0] == pytest.approx(printed[1])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["star", "--of", "run.parquet"], "--of run.parquet brings its own scenario; leave out star"),
        (["star", "--play-back", "all"], "--play-back needs --of RUN"),
        (["--of", "run.parquet", "--precision", "2%"], "leave out --precision and --path"),
        (["--of", "nowhere.parquet"], "nowhere.parquet: cannot be read"),
    ],
)
def test_what_does_not_go_with_playing_back_is_named(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "simulate", *arguments) == 2
    assert line in capsys.readouterr().err


def test_simulation_needs_no_torch(file: Path) -> None:
    """The card promises that simulation alone installs without the engine's packages."""
    program = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "zmq", "tokenizers", "safetensors"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["specfleet", "simulate", sys.argv[1]]
from specfleet.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "throughput" in done.stdout


def test_help_lists_the_commands_and_imports_no_heavy_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "specfleet", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    for name in ("simulate", "run", "analytic", "show", "sweep", "compare", "calibrate", "reproduce", "demo", "figure"):
        assert f"\n  {name} " in done.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {"numpy", "pandas", "pyarrow", "msgspec", "matplotlib", "scipy", "simpy", "torch", "rich"}


def test_without_a_command_there_is_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(monkeypatch) == 0
    assert "Commands:" in capsys.readouterr().out


def test_tables_print_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("fits [ms]", ("quantity", "value"), [("verify", "1 k + 2 [r] ms")])
    printed = capsys.readouterr().out
    assert "fits [ms]" in printed
    assert "1 k + 2 [r] ms" in printed
