"""The wheel holds what `pip install` promises and nothing else, and works where nothing else is installed."""

import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
ROOMS = PROJECT["tool"]["setuptools"]["package-dir"]  # where the source of a package stands, by its import name
DATA = {".py", ".json", ".toml", ".safetensors", ".typed", ".md"}  # what packages hold beside their modules
PAGES = ("page.html", "style.css", "explore.html", "explore.css", "equations.js", "explore.js")
PAPERS = ("amusd", "batch", "dsde", "goodspeed", "starsd")
NOBODY = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


def copied(folder: Path, *, links: bool) -> Path:
    """Return a copy of what is tracked, so that nothing of an earlier build slips in; a tree may be without links."""
    tracked = run("git", "ls-files", "-z", cwd=ROOT).stdout.split("\0")
    for path in (ROOT / name for name in tracked if name):
        target = folder / path.relative_to(ROOT)
        if path.is_file() or (links and path.is_symlink()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target, follow_symlinks=False)
    return folder


def built(source: str | Path, folder: Path) -> Path:
    """Return the wheel that pip builds of a source, in a folder of its own."""
    ended = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, source, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def names_in(wheel: Path) -> list[str]:
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a tree without symbolic links, as some archives and file systems leave it."""
    return built(copied(tmp_path_factory.mktemp("source"), links=False), tmp_path_factory.mktemp("wheel"))


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
    folder = ROOT / package.replace(".", "/")  # by its link
    return {str(path.relative_to(ROOT)) for path in folder.iterdir() if path.is_file() and path.suffix in DATA}


def test_the_wheel_holds_the_packages_their_data_and_the_licence(wheel: Path) -> None:
    names = set(names_in(wheel))
    modules = {name for package in PACKAGES for name in files_of(package) if name.endswith(".py")}
    assert modules | {f"specfleet/experiments/report/{file}" for file in PAGES} <= names
    others = names - modules
    allowed = (
        "specfleet/fleet/data/",
        *(f"specfleet/experiments/report/{file}" for file in PAGES),
        *(f"specfleet/experiments/reproduce/{paper}.toml" for paper in PAPERS),
        "specfleet/engine/demo_pair/",
        "specfleet/calibration/readers/signatures.toml",
        "specfleet/meaning/entries.json",
        "specfleet/py.typed",
    )
    assert {name for name in others if not name.startswith(allowed)} == set()
    assert {name.split("/")[0] for name in names} == {"specfleet"}, "users have folders named sim and experiments"
    licences = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("licenses/LICENSE")]
    assert len(licences) == 1


def test_every_package_with_modules_is_in_the_list() -> None:
    found = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for package, folder in {"specfleet": "specfleet", **ROOMS}.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert found == set(PACKAGES)


def test_every_source_gives_the_same_wheel_and_holds_files_once(wheel: Path, tmp_path: Path) -> None:
    source = copied(tmp_path / "source", links=True)
    made = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    ended = run(sys.executable, "-c", made, tmp_path, cwd=source)
    assert ended.returncode == 0, ended.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym()]
    modules = [member.name for member in members if member.name.endswith(".py")]
    assert len(modules) == len(set(modules)) == sum(name.endswith(".py") for name in names_in(wheel))
    for command in (("init", "-q"), ("add", "."), (*NOBODY, "commit", "-qm", "all")):
        assert run("git", *command, cwd=source).returncode == 0
    for name, origin in {"sdist": sdist, "url": f"git+file://{source}"}.items():
        (tmp_path / name).mkdir()
        assert names_in(built(origin, tmp_path / name)) == names_in(wheel), name


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
    assert "<svg " in page, "the figure"


def test_a_run_without_the_engine_says_what_to_install(empty: Path, tmp_path: Path) -> None:
    ended = run(empty / "specfleet", "run", "star", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines()[-1].endswith("is not installed; pip install 'specfleet[engine]'")
