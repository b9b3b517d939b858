"""The wheel holds what `pip install` promises and nothing else, and works where nothing else is installed."""

import json
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
DATA = {".py", ".json", ".toml", ".safetensors", ".typed", ".md"}  # what packages hold beside their modules

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what is tracked, so that nothing of an earlier build slips in."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = run("git", "ls-files", "-z", cwd=ROOT).stdout.split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, folder / "source", cwd=folder)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The scripts of a virtual environment that holds the wheel and what it asks for; no torch."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    pip = folder / "bin" / "pip"
    installed = run(pip, "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


def files_of(package: str) -> set[str]:
    folder = ROOT / package.replace(".", "/")
    return {str(path.relative_to(ROOT)) for path in folder.iterdir() if path.is_file() and path.suffix in DATA}


def test_the_wheel_holds_the_packages_their_data_and_the_licence(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {name for package in PACKAGES for name in files_of(package) if name.endswith(".py")}
    assert modules <= names
    others = names - modules
    allowed = (
        *(f"fleet/data/{kind}/" for kind in ("profiles", "shapes", "devices", "engines", "scenarios")),
        "experiments/report/page.html",
        *(f"experiments/reproduce/{paper}.toml" for paper in ("amusd", "batch", "dsde", "goodspeed", "starsd")),
        "engine/demo_pair/",
        "fleet/py.typed",
        "specfleet/__init__.pyi",
        "specfleet/py.typed",
    )
    assert {name for name in others if not name.startswith(allowed)} == set()
    assert {name.split("/")[0] for name in names} == {package.split(".")[0] for package in PACKAGES}
    licences = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("licenses/LICENSE")]
    assert len(licences) == 1


def test_every_package_with_modules_is_in_the_list() -> None:
    rooms = {package.split(".")[0] for package in PACKAGES}
    found = {
        str(path.parent.relative_to(ROOT)).replace("/", ".") for room in rooms for path in (ROOT / room).rglob("*.py")
    }
    assert found == set(PACKAGES)


@pytest.mark.parametrize(
    "command",
    [("scenarios",), ("profiles",), ("explain", "N_full"), ("show", "star"), ("analytic", "star"), ("--help",)],
    ids=" ".join,
)
def test_commands_work_in_an_empty_environment(empty: Path, tmp_path: Path, command: Sequence[str]) -> None:
    ended = run(empty / "specfleet", *command, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()


def test_a_simulation_and_its_figure_work_in_an_empty_environment(empty: Path, tmp_path: Path) -> None:
    ended = run(empty / "specfleet", "simulate", "star", "--json", "-o", tmp_path / "run.parquet", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["metrics"]["throughput"]["value"] > 0
    drawn = run(empty / "specfleet", "figure", "timeline", "run.parquet", "-o", "timeline.png", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "timeline.png").stat().st_size > 10_000
    paged = run(empty / "specfleet", "report", "run.parquet", "-o", "page.html", cwd=tmp_path)
    assert paged.returncode == 0, paged.stderr
    page = (tmp_path / "page.html").read_text()
    assert "head.setAttribute" in page, "the script that sorts tables"
    assert "data:image/svg+xml" in page, "the figure"


def test_a_run_without_the_engine_says_what_to_install(empty: Path, tmp_path: Path) -> None:
    ended = run(empty / "specfleet", "run", "star", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines()[-1].endswith("is not installed; pip install 'specfleet[engine]'")
