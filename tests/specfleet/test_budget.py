"""The product stays small: each room has a budget of lines, in CONTRIBUTING.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTED = {".py", ".pyi", ".js", ".html"}
ROW = r"^\| `([\w/]+)`(?:, `([\w/]+)`)? \| ([\d,]+) \|$"
BUDGETS = {
    tuple(filter(None, rooms)): int(lines.replace(",", ""))
    for *rooms, lines in re.findall(ROW, (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
}
PRODUCT = {"specfleet", "fleet", "sim", "engine", "calibrate", "experiments", "figures"}


def lines_of(room: str) -> int:
    """Count the lines of a room's files; links to other rooms are not followed."""
    files = (path for path in (ROOT / room).rglob("*") if path.suffix in COUNTED and path.is_file())
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("rooms", BUDGETS, ids=" and ".join)
def test_a_room_keeps_within_its_budget(rooms: tuple[str, ...]) -> None:
    lines = sum(map(lines_of, rooms))
    assert lines <= BUDGETS[rooms], (
        f"{' and '.join(rooms)}: {lines} lines, budget {BUDGETS[rooms]}; read the room for what has no user or "
        "is written twice. An issue with an allowance of lines raises the budget by that, no other change does"
    )


def test_every_room_has_a_budget() -> None:
    assert {room for rooms in BUDGETS for room in rooms} == PRODUCT | {"bench", "tools", "tests"}
