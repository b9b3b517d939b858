"""What is not used is not imported: what a program waits for before it begins is part of what it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import specfleet

HEAVY = {"pandas", "matplotlib", "scipy.stats", "scipy.optimize", "torch", "transformers", "zmq"}
LIBRARIES = HEAVY | {"numpy", "scipy", "pyarrow", "simpy", "rich", "msgspec"}


def imported(program: str, *arguments: str) -> set[str]:
    """The modules that a program has imported when it ends, by whatever way."""
    preamble = "import atexit, sys; atexit.register(lambda: print('imported', *sys.modules, file=sys.stderr))\n"
    command = [sys.executable, "-c", preamble + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("imported ")[2].split())


def command(*arguments: str) -> set[str]:
    return imported("from specfleet.cli import main; main()", *arguments)


@pytest.mark.parametrize("arguments", [["--help"], ["simulate", "--help"], ["--version"]])
def test_help_imports_no_library(arguments: list[str]) -> None:
    assert not command(*arguments) & LIBRARIES


def test_importing_the_package_imports_no_library() -> None:
    modules = imported("import specfleet")
    assert not modules & LIBRARIES
    assert "specfleet.api" not in modules


@pytest.mark.parametrize("out", [[], ["--json"]])
def test_a_simulation_and_its_metrics_import_nothing_heavy(out: list[str], tmp_path: Path) -> None:
    kept = ["-o", str(tmp_path / "run.parquet")]
    modules = command("simulate", "star", "--set", "workload.requests=12", *kept, *out)
    assert "simpy" in modules
    assert not modules & HEAVY
    assert "joblib" not in modules, "one simulation runs in one process"


def test_the_settled_fleet_imports_nothing_heavy() -> None:
    assert not command("show", "star") & HEAVY


def test_metrics_of_records_import_nothing_heavy(tmp_path: Path) -> None:
    """Neither pandas for the rows nor scipy.stats for the quantiles; pyarrow does not bring in pandas."""
    specfleet.simulate("star", workload={"requests": 12}).save(tmp_path / "run.parquet")
    program = "import sys, specfleet; assert specfleet.read_run(sys.argv[1]).metrics['throughput'].value > 0"
    assert not imported(program, str(tmp_path / "run.parquet")) & HEAVY


def test_a_worker_of_a_sweep_imports_nothing_heavy() -> None:
    program = """
from specfleet.experiments.sweep.cell import run_cell
from specfleet.fleet.scenario.reading import scenario_of
assert not run_cell({}, scenario_of("star", {"workload.requests": 12}), "sim", 2).error
"""
    assert not imported(program) & HEAVY


def test_folders_with_names_of_our_rooms_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who works in a folder with an `experiments/`, a `sim/` and an `engine.py` of their own imports ours."""
    for name in ("fleet", "sim", "calibrate", "experiments", "figures"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('of the user')")
    (tmp_path / "engine.py").write_text("raise ImportError('of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(specfleet.__file__).parents[1]))
    assert "specfleet.sim.run" in command("simulate", "star", "--set", "workload.requests=12")
    assert "specfleet.engine.launch.serve" in imported("import specfleet.engine.launch.serve")


def test_tests_of_fleet_and_sim_load_without_the_engines_libraries() -> None:
    hidden = ("-p", "tests.helpers.without_engine")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *hidden, "tests/fleet", "tests/sim"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:]
