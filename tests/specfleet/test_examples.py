"""Examples work: doctests, `python` blocks of pages, scripts in docs/."""

import doctest
import importlib
import inspect
import re
import runpy
import shutil
from pathlib import Path

import pytest

import specfleet

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = sorted((ROOT / "docs" / "examples").glob("*.py"))
READ = ("docs", "fleet/data")  # what examples may read beside the installed packages
PACKAGES = {  # by their folders
    "specfleet": "specfleet", "fleet": "specfleet.fleet", "sim": "specfleet.sim",
    "calibrate": "specfleet.calibration", "experiments": "specfleet.experiments",
    "figures": "specfleet.figures",
}  # fmt: skip
MODULES = [
    ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts))
    for folder, package in PACKAGES.items()
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>>" in path.read_text()
]


def blocks_of(page: str) -> list[str]:
    """The fenced blocks that call themselves `python`, without any further word."""
    return re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that looks like the repository's root; what examples write stays in it."""
    for name in READ:
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.usefixtures("in_a_copy")
def test_examples_in_docstrings_give_what_they_say(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0, f"{results.failed} of {results.attempted} examples of {name}: see the captured output"


def test_every_function_of_the_api_shows_an_example() -> None:
    functions = [getattr(specfleet, name) for name in specfleet.__all__]
    shown = {
        function.__name__: f"{function.__name__}(" in function.__doc__
        for function in functions
        if inspect.isfunction(function)
    }
    assert len(shown) > 8
    assert [name for name, is_shown in shown.items() if not is_shown] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page.read_text())], ids=lambda page: page.stem)
@pytest.mark.usefixtures("in_a_copy")
def test_python_blocks_of_a_page_run_one_after_the_other(page: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks_of(page.read_text()), start=1):
        if "from distributed" in block:
            pytest.importorskip("distributed")
        exec(compile(block, f"{page.name}, python block {number}", "exec"), names)  # noqa: S102  (our own pages)


def test_blocks_are_found() -> None:
    page = "```python\na = 1\n```\n\n```bash\nb\n```\n\n```python\nc = 2\n```\n"
    assert blocks_of(page) == ["a = 1\n", "c = 2\n"]
    assert blocks_of((ROOT / "README.md").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scripts_run_and_leave_what_they_draw(script: Path, in_a_copy: Path) -> None:
    runpy.run_path(str(script), run_name="__main__")
    for drawn in re.findall(r"out=\"(.*?)\"", script.read_text()):
        assert (in_a_copy / drawn).stat().st_size > 5000
