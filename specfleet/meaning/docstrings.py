"""A documented struct's docstring in parts: a first sentence, prose, and a description for each of its keys.

The section is called `Keys:` and is written in Google's style. What stands in parentheses after a key is its unit; a
description that begins with something in backticks and a comma gives the symbol that the papers use.
"""

import inspect
import re
from collections.abc import Mapping

import msgspec
from docstring_parser.google import GoogleParser, Section, SectionType

_PARSER = GoogleParser([Section("Keys", "attribute", SectionType.MULTIPLE)])
_SYMBOL = re.compile(r"`([^`]+)`, (.*)", re.DOTALL)
UNITS = (  # of a quantity by the end of its name, longer endings first
    ("tokens_per_s", "tokens/s"),
    ("rounds_per_s", "rounds/s"),
    ("bytes_per_token", "bytes/token"),
    ("bytes_per_s", "bytes/s"),
    ("_bytes", "bytes"),
    ("_per_s", "1/s"),
    ("_s", "s"),
    ("_w", "W"),
)


class Described(msgspec.Struct, frozen=True):
    """What a docstring says of one key; unit and symbol are empty where there is none."""

    what: str
    unit: str
    symbol: str


class Docs(msgspec.Struct, frozen=True):
    """What a docstring says of a struct."""

    first: str
    prose: str
    keys: Mapping[str, Described]


def docs_of(struct: type) -> Docs:
    """Take a class's docstring apart; keys that it has from its bases are described there."""
    keys: dict[str, Described] = {}
    for base in reversed(struct.__mro__):
        own = base.__dict__.get("__doc__")
        if isinstance(own, str) and own is not object.__doc__:
            keys |= {param.arg_name: _described(param.arg_name, param.type_name, param.description or "")
                     for param in _PARSER.parse(own).params}  # fmt: skip
    said = _PARSER.parse(inspect.getdoc(struct) or "")
    return Docs(_one_line(said.short_description or ""), said.long_description or "", keys)


def unit_of(name: str) -> str:
    """Return the unit that a quantity's name ends with; empty where it says none."""
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")


def _described(name: str, unit: str | None, text: str) -> Described:
    text = _one_line(text)
    found = _SYMBOL.fullmatch(text)
    symbol, what = found.groups() if found else ("", text)
    return Described(what[:1].upper() + what[1:] if symbol else what, unit or unit_of(name), symbol)


def _one_line(text: str) -> str:
    return " ".join(text.split())
