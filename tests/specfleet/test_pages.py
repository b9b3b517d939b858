"""What the pages say of the tree is true: links lead somewhere, named paths exist, the floors are the enforced ones.

The command of docs/concurrency.md runs as it stands there, and its table is what it prints.
"""

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT, specfleet

TOLD = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md")]
LINKED = [*TOLD, *sorted((ROOT / "docs").rglob("*.md"))]
NAMING_PATHS = [*TOLD, *sorted((ROOT / "docs" / "decisions").glob("*.md"))]
LEFT_BY_RUNS = ("runs/", "records/", ".venv/")  # not in the tree before something ran
PATH = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INDEXES = {  # what lists the files of a folder, and the folder
    "fleet/records/__init__.py": "fleet/records",
    "fleet/records/metrics/__init__.py": "fleet/records/metrics",
    "experiments/__init__.py": "experiments",
    "experiments/compare/__init__.py": "experiments/compare",
}
CONCURRENCY = (ROOT / "docs" / "concurrency.md").read_text()
(COMMAND,) = re.findall(r"```console\n\$ (.*?)\n```", CONCURRENCY, re.DOTALL)
TABLE = re.findall(r"^\| [^|]+? \| (\d+ \([\d.]+\).*?) \|$", CONCURRENCY, re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """The page without fenced blocks, which have the reader's own paths."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(text))


def links(text: str) -> list[str]:
    return LINK.findall(re.sub(r"`[^`\n]*`", "", prose(text)))


@cache
def file_names() -> frozenset[str]:
    """Names of all files of the tree, but for hidden folders and what runs leave."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in ("runs", "build")]
    visible = [folder for folder in folders if not folder.name.startswith(".")]
    return frozenset(
        path.name for folder in [ROOT, *visible] for path in folder.glob("**/*" if folder != ROOT else "*")
    )


def is_missing(span: str) -> bool:
    """Whether a code span names a path, or a source file by its bare name, that the tree does not have."""
    if not PATH.fullmatch(span) or "NAME" in span or span.startswith(LEFT_BY_RUNS):
        return False
    if "/" not in span:
        return span.endswith((".py", ".toml")) and span not in file_names()
    meant = (ROOT / span.split("/", maxsplit=1)[0]).exists() or re.search(r"/$|\.[a-z]{2,5}$", span)
    return bool(meant) and not (ROOT / span).exists()


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = [link.split("#")[0] for link in links(page.read_text()) if not re.match(r"[a-z]+:", link)]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", NAMING_PATHS, ids=name_of)
def test_named_paths_exist(page: Path) -> None:
    assert [span for span in code_spans(page.read_text()) if is_missing(span)] == []


def layer(text: str) -> frozenset[str]:
    """Rooms of one line: side by side, with | between them."""
    return frozenset(part.strip() for part in text.split("|"))


def enforced() -> dict[str, list[frozenset[str]]]:
    """Layers by their container, from the roof down, by the names of their folders; the floors under the empty name."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contracts = tool["importlinter"]["contracts"]
    assert not any("ignore_imports" in contract for contract in contracts), "DESIGN.md says: without an exception"
    folders = {name.rpartition(".")[2]: folder for name, folder in tool["setuptools"]["package-dir"].items()}
    layers: dict[str, list[frozenset[str]]] = {"": []}
    for contract in (contract for contract in contracts if contract["type"] == "layers"):
        container = contract.get("containers", [""])[0].removeprefix("specfleet").strip(".")
        named = [[folders.get(room, room) for room in layer(text)] for text in contract["layers"]]
        if container:
            layers[container] = [frozenset(f"{container}.{room}" for room in rooms) for rooms in named]
        elif "containers" in contract:  # the floors; what stands in specfleet/ itself is one of them
            layers[""] += [frozenset(rooms) for rooms in named if set(rooms) <= set(folders.values())]
        else:
            layers[""] = [frozenset(rooms) for rooms in named]
    return layers


def pictured(page: str) -> dict[str, list[frozenset[str]]]:
    """The same from the picture in DESIGN.md: rooms, two spaces or more, what lives there; wings are indented."""
    picture = re.search(r"^## The floors$.*?^```text\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert picture is not None, "no picture under the heading 'The floors'"
    layers: dict[str, list[frozenset[str]]] = {}
    for line in picture[1].splitlines():
        rooms = layer(re.split(r" {2,}", line.strip())[0])
        containers = {room.partition(".")[0] for room in rooms} if line.startswith(" ") else {""}
        assert len(containers) == 1, line
        layers.setdefault(containers.pop(), []).append(rooms)
    return layers


def test_the_floors_in_the_design_are_those_that_are_enforced() -> None:
    assert pictured((ROOT / "DESIGN.md").read_text()) == enforced()


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_lists_every_file_of_its_folder(index: str) -> None:
    files = {
        path.name if path.is_file() else f"{path.name}/"
        for path in (ROOT / INDEXES[index]).glob("[!_]*")
        if not path.name.startswith("test_")
        if path.suffix == ".py" or any(path.glob("*.py"))
    }
    text = (ROOT / index).read_text()
    assert [name for name in files if not re.search(rf"\b{re.escape(name)}", text)] == []


def test_the_packages_of_the_lowest_layer_are_documented() -> None:
    wings = {room.partition(".")[2] for rooms in enforced()["fleet"] for room in rooms}
    assert wings <= set(re.findall(r"`(\w+)`", (ROOT / "fleet" / "__init__.py").read_text()))


def test_the_citation_names_this_version_and_licence() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert all((ROOT / name).is_file() for name in project["license-files"])


@pytest.mark.slow
def test_the_pages_table_is_what_its_command_prints() -> None:
    words = shlex.split(COMMAND.replace("\\\n", " "))
    process = specfleet(*words[1:])
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    printed = [re.findall(r"(\d+) \(([\d.]+), \d+", line) for line in out.splitlines() if re.search(r"\(.*, \d+", line)]
    shown = [re.findall(r"(\d+) \(([\d.]+)\)", row) for row in TABLE]
    assert len(shown) == 4
    assert [row for row in printed if len(row) == 4] == shown
