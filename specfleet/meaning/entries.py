"""What keys, policies, models, metrics, symbols and columns mean, as `explain` prints it and `init` comments it.

`entries.json` says it; `python -m tools.reference` makes that file from docstrings and the glossary.
"""

import inspect
import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.nearest import ENGINES_WORDS
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.policies.own import installed

FILE = Path(__file__).with_name("entries.json")
REQUIRED, LEFT_OUT, OF_ITS_KEYS = "required", "left out", "its keys' defaults"  # defaults that are no value
NEAREST = 5
OF_LIST = r"\[\d*\]|\.\d+(?=\.|$)"  # in a key, an item of a list


class Entry(msgspec.Struct, frozen=True):
    """One thing that can be looked up, by any of its `names`; `facts` are texts by their labels."""

    title: str
    kind: str
    names: tuple[str, ...]
    what: str
    facts: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The last part of its title."""
        return self.title.rpartition(".")[2]


@cache
def known_entries() -> tuple[Entry, ...]:
    """Return what the file says, what people ask for most first."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[Entry, ...])


def _of_packages() -> list[Entry]:
    """Return the policies of installed packages, as their docstrings say them."""
    tags = {str(policy.__struct_config__.tag): policy for policy in installed()}
    return [Entry(tag, "policy", (tag, policy.__name__), inspect.getdoc(policy) or "") for tag, policy in tags.items()]


def axis_label(name: str) -> tuple[str, str]:
    """Return what stands at an axis for a key or metric: words with its symbol; and its unit, none beside a count.

    >>> axis_label("verifiers.count"), axis_label("tpot_p99_s"), axis_label("link.latency_s")
    (('targets N', ''), ('TPOT P99', 's'), ('link.latency', 's'))
    """
    facts: dict[str, str] = next((entry.facts for entry in known_entries() if name in entry.names), {})
    unit, symbol = facts.get("unit", ""), facts.get("symbol", "")
    bare = re.sub("_per_s" if unit.endswith("/s") else "_s$" if unit.startswith("s") else "$", "", name)
    if not symbol:
        return bare if "." in name else bare.replace("_", " "), unit
    last = bare.rpartition(".")[2]
    percentile = last[-3:] if re.search(r"_p\d\d$", last) else ""
    word = unit if last == "count" else last.removesuffix(f"_{percentile}").replace("_", " ")
    parts = ["" if symbol.lower() == word.lower().replace(" ", "_") else word, symbol, percentile.upper()]
    return " ".join(filter(None, parts)), "" if facts.get("type") == "integer" else unit


def explain(word: str) -> list[Entry]:
    """Return the entries of a key (its full name or the last parts of it), metric, symbol, column, policy or model.

    Words of other engines stand for keys, and a value for the keys that allow it. Raises InputError with the nearest
    words where there is no entry.
    """
    entries, sought = (*known_entries(), *_of_packages()), re.sub(OF_LIST, "", word.strip().strip("`"))
    sought = ENGINES_WORDS.get(sought, sought)
    matches = [entry for entry in entries if any(f".{name}".endswith(f".{sought}") for name in entry.names)]
    words = [one for one in entries if one.kind in ("word", "line of a plan")]
    spoken = {sought.lower(), sought.lower().replace("_", " ")}
    matches = matches or [one for one in words if spoken & set(map(str.lower, one.names))]
    key, _, last = sought.rpartition(".")
    matches = matches or [entry for entry in entries if key and entry.kind == "policy" and last in entry.names]
    if all(entry.kind.endswith("key") for entry in matches):  # policies and models name their keys
        matches += [one for one in entries if f'"{sought}"' in one.facts.get("allowed", "") and one not in matches]
    if matches:
        return matches
    names = {name for entry in entries for name in entry.names}
    candidates = names if "." in sought else {name.rpartition(".")[2] for name in names}
    written = {name.lower(): name for name in sorted(candidates)}
    near = [written[name] for name in get_close_matches(sought.lower(), written, NEAREST)]
    hint = "nearest: " + ", ".join(near) if near else "nothing is near it"
    raise InputError(f"explain {shortened(word, quoted=False)}: unknown; {hint}")
