"""What a paper prints, and what its reproductions assume: one TOML file beside them holds both.

`[[assumed]]` has texts, and the reproductions that they hold for, `of`; without it they hold for all of the file. All
other tables are the paper's, or what stands for numbers that it does not print.
"""

from pathlib import Path
from typing import Any

from specfleet.fleet.inputs.text import read_toml

ASSUMED = "assumed"
HERE = Path(__file__).parent


class Paper(dict[str, Any]):
    """The tables of a file by name: keys that are numbers are numbers, lists are tuples."""

    def __init__(self, name: str, folder: Path = HERE) -> None:
        content = read_toml(folder / f"{name}.toml")
        self.assumptions: list[dict[str, Any]] = content.pop(ASSUMED, [])
        super().__init__({name: _frozen(table) for name, table in content.items()})

    def assumed(self, name: str = "") -> list[str]:
        """Return what the reproduction of that name assumes, or what all do."""
        return [text for entry in self.assumptions if name in entry.get("of", [name]) for text in entry["texts"]]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(name): _frozen(entry) for name, entry in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _key(name: str) -> str | float:
    """Return a number for the name of one, as a temperature or a batch size; others stay."""
    try:
        return int(name)
    except ValueError:
        pass
    try:
        return float(name)
    except ValueError:
        return name
