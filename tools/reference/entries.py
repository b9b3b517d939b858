"""What the code says of itself, as entries: keys, policies and models, metrics, symbols, columns.

A documented struct has a section `Keys:` in its docstring, in Google's style, a line a key. What stands in parentheses
after a key is its unit; a description that begins with something in backticks and a comma gives the papers' symbol.
Types, bounds and defaults come from the struct itself, metrics and symbols from the glossary.
"""

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache

import msgspec
from msgspec import inspect as types

from specfleet.fleet.acceptance.signals import SignalRow
from specfleet.fleet.hardware.device import Accelerator
from specfleet.fleet.inputs.strict import MEANS, name_key
from specfleet.fleet.records.metrics.glossary import METRICS, PERCENTILES, Meaning, percentile_name
from specfleet.fleet.records.run import RunHeader
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import default_of, fields_of, tag_of, toml
from specfleet.fleet.stations.star import StarInputs
from specfleet.fleet.times.roofline import Roofline
from specfleet.meaning.entries import FILE, LEFT_OUT, OF_ITS_KEYS, REQUIRED, Entry
from specfleet.sim.analytic import StarPrediction

GLOSSARY, PLAN = (FILE.parents[2] / "docs" / name for name in ("glossary.md", "plan.md"))
HEADING = ("here",)  # of the glossary's table
KEYS = "\nKeys:\n"
KEY = re.compile(r"^ {4}(\w+)(?: \((.+?)\))?: (.*(?:\n {8}.*)*)", re.MULTILINE)  # name, unit and meaning
SYMBOL = re.compile(r"`([^`]+)`, (.*)", re.DOTALL)
UNITS = {  # of a quantity by the end of its name, longer endings first
    "tokens_per_s": "tokens/s", "rounds_per_s": "rounds/s", "bytes_per_token": "bytes/token", "bytes_per_s": "bytes/s",
    "_bytes": "bytes", "_per_s": "1/s", "_s": "s", "_w": "W",
}  # fmt: skip
WORDS = {
    types.BoolType: "true or false", types.IntType: "integer", types.FloatType: "number", types.StrType: "text",
    types.LiteralType: "text", types.AnyType: "anything",
}  # fmt: skip
BY_NAME = "table by name"
UNLISTED = Roofline  # files have it; users give models and devices instead
SYMBOLS = (
    Meaning("t_s", "s", "Time that a drafter takes for one draft token: `draft.per_token_s` of a profile.", "t_s",
            "S(d) = d t_s", "StarSD, equation (5)"),
    Meaning("l", "tokens", "Acceptance length of a round: how many leading draft tokens the target accepts.", "l",
            "0 <= l <= d", "StarSD, lemma 3.1"),
    Meaning("alpha", "share", "Acceptance rate of a client: the probability that the target accepts a draft token, as "
            "GoodSpeed and Batch Speculative Decoding Done Right write it; StarSD's is beta.", "alpha",
            "alpha = E[min(1, p/q)]", "GoodSpeed"),
    Meaning("alpha-hat", "share", "The estimate of a client's acceptance rate, smoothed with weight eta.", "alpha-hat",
            "alpha-hat <- (1 - eta) alpha-hat + eta (mean ratio)", "GoodSpeed, equation (3)"),
    Meaning("x_i", "tokens/round", "Goodput of client i in a round: its accepted tokens and the target's own.", "x_i",
            "x-hat = (1 - alpha^(S_i + 1)) / (1 - alpha)", "GoodSpeed, section III-B"),
    Meaning("X", "tokens/round", "The estimate of a client's goodput, smoothed with weight beta.", "X",
            "X <- (1 - beta) X + beta x", "GoodSpeed, equation (4)"),
    Meaning("optimum", "tokens/round", "Goodputs of all clients of the largest utility that a budget allows, "
            "at constant acceptance. Runs have its utility, `utility_optimum`.", "x*", "max U(x) over the region X",
            "GoodSpeed, equations (1) and (2)"),
    Meaning("S_i", "tokens", "Speculation length that the verifier grants to client i; all together at most C.", "S_i",
            "maximise sum x-hat_i(S_i) / X_i", "GoodSpeed, equation (5)"),
    Meaning("SL_max", "tokens", "The longest length of a sequence, set at the end of its calibration.", "SL_max",
            "SL_A,max (1 + mean KLD / (peak KLD + epsilon))", "DSDE, equation (1)"),
    Meaning("SL-hat", "tokens", "The predicted length of a sequence's next draft.", "SL-hat",
            "(1 - SF WVIR) (SL_max - SL_min) + SL_min, at least SL_min", "DSDE, equations (2) and (8)"),
    Meaning("SF", "factor", "Scale factor: how far drafter and target disagreed in the last step.", "SF",
            "SF = exp(2 mean KLD) - 1", "DSDE, equation (3)"),
    Meaning("WVIR", "factor", "How much the divergence varied of late, over how much it varied for longer; 20 where "
            "that is nearly 0.", "WVIR", "Var_w(short) / Var_w(long)", "DSDE, equations (4) to (7)"),
    Meaning("p", "probability", "The target's probability of a token.", "p"),
    Meaning("q", "probability", "The drafter's probability of a token.", "q"),
    Meaning("KLD", "nats", "Divergence of the drafter's distribution from the target's at a place: KL(p||q).", "KLD",
            "sum p log(p / q)", "DSDE"),
    Meaning("H", "nats", "Entropy of the distribution that a draft token was drawn from.", "H", "-sum q log q",
            "AdaEDL"),
    Meaning("epoch", "number", "A stretch of a session between two outcomes that made earlier drafts worthless; "
            "messages of another epoch are stale."),
)  # fmt: skip
"""Symbols of the papers that are neither a metric nor a key."""


class Key(msgspec.Struct, frozen=True):
    """A key of a struct.

    `facts`: its type, what is allowed, unit, default and symbol, by these labels, as far as there are any. `structs`:
    the tables that its value may be.
    """

    name: str
    what: str
    facts: dict[str, str]
    structs: tuple[type, ...]


class KeyTable(msgspec.Struct, frozen=True):
    """A struct with its keys. `paths`: where it stands, as dotted names; `uses`: the keys that hold it.

    `title`: its path (the shortest, if all others end with it), the name of a policy or model, or else the struct's own
    name. `tag_field`: the key that names the policy or model, empty for a plain table.
    """

    struct: type
    title: str
    tag_field: str
    first: str
    prose: str
    keys: tuple[Key, ...]
    paths: tuple[str, ...]
    uses: tuple[str, ...]

    @property
    def is_of_profile(self) -> bool:
        """Whether it belongs to the profile's format rather than to the scenario's own keys."""
        return self.struct.__module__.startswith("specfleet.fleet.times.")

    @property
    def holders(self) -> tuple[str, ...]:
        """The keys that hold it, where that is not plain from its path."""
        return self.uses if self.tag_field or len(self.paths) > 1 else ()


def prose_of(struct: type) -> tuple[str, str]:
    """Return the first sentence and the prose of a struct's docstring, without its keys."""
    first, _, prose = (inspect.getdoc(struct) or "").partition(KEYS)[0].partition("\n")
    return _one_line(first), prose.strip()


def described_keys(struct: type) -> dict[str, tuple[str, str, str]]:
    """Return meaning, unit and symbol of each key that a struct's docstring describes, or those of its bases."""
    keys = {}
    for base in reversed(struct.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition(KEYS)[2]
        for name, stated, description in KEY.findall(text):
            said = _one_line(description)
            found = SYMBOL.fullmatch(said)
            symbol, what = found.groups() if found else ("", said)
            unit = stated or next((UNITS[end] for end in UNITS if name.endswith(end)), "")
            keys[name] = (what[:1].upper() + what[1:] if symbol else what, unit, symbol)
    return keys


def keys_of(struct: type) -> tuple[Key, ...]:
    """Return the keys of a struct in its order, but for UNLISTED tables; the meaning is empty without a docstring."""
    described, keys = described_keys(struct), []
    for field in fields_of(struct):
        structs = [arm.cls for arm in arms(field.type) if isinstance(arm, types.StructType)]
        if UNLISTED in structs:
            continue
        what, unit, symbol = described.get(field.name, ("", "", ""))
        texts = in_words(field.type), allowed(field), unit, default_text(field), symbol
        labels = ("type", "allowed", "unit", "default", "symbol")
        facts = {label: text for label, text in zip(labels, texts, strict=True) if text}
        keys.append(Key(field.encode_name, what, facts, tuple(structs)))
    return tuple(keys)


def arms(kind: types.Type) -> tuple[types.Type, ...]:
    """List the alternatives of a type but for None; the items of lists, and the values of tables, take their place."""
    match kind:
        case types.UnionType():
            return tuple(arm for part in kind.types for arm in arms(part))
        case types.VarTupleType() | types.ListType():
            return arms(kind.item_type)
        case types.DictType():
            return arms(kind.value_type)
    return () if isinstance(kind, types.NoneType) else (kind,)


def in_words(kind: types.Type) -> str:
    """Name a type: what a value of it is in TOML."""
    match kind:
        case types.VarTupleType() | types.ListType():
            return f"list: {in_words(kind.item_type)}"
        case types.TupleType():
            return f"list of {len(kind.item_types)}: {', '.join(map(in_words, kind.item_types))}"
        case types.DictType():
            return f"{BY_NAME}: {in_words(kind.value_type)}"
        case types.UnionType():
            parts = [in_words(part) for part in kind.types if not isinstance(part, types.NoneType)]
            return " or ".join(dict.fromkeys(parts))
        case types.StructType():
            field = name_key(kind.cls)
            bare = "table, or a time such as 45ms" if {*kind.cls.__struct_fields__[:1]} & {*MEANS} else "table"
            return f"table with `{field}`, or a name" if field else bare
    return WORDS[type(kind)]


def allowed(field: types.Field) -> str:
    """Say what values of a key are allowed, beyond its type."""
    texts = [f'"{tag_of(arm.cls)[1]}"' for arm in arms(field.type) if isinstance(arm, types.StructType)]
    texts = [text for text in texts if text != '""']
    for arm in arms(field.type):
        match arm:
            case types.LiteralType():
                texts += [json.dumps(value) for value in arm.values]
            case types.IntType() | types.FloatType():
                texts.append(bounds(arm))
            case types.StrType() if arm.pattern:
                texts.append(f"text that matches {arm.pattern}")
    least = field.type.min_length if isinstance(field.type, types.VarTupleType) else None
    return ", ".join([*dict.fromkeys(filter(None, texts)), *([f"{least} or more entries"] if least else [])])


def bounds(kind: types.IntType | types.FloatType) -> str:
    """Say the bounds of a number, such as `> 0 and <= 1`."""
    limits = ((">=", kind.ge), (">", kind.gt), ("<=", kind.le), ("<", kind.lt))
    return " and ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)


def default_text(field: types.Field) -> str:
    """Write a field's default as TOML; in words if there is no value, or if it is a table of defaults."""
    default = default_of(field)
    if default is msgspec.NODEFAULT:
        return REQUIRED
    text = LEFT_OUT if default is None or default is msgspec.UNSET else toml(default)
    return OF_ITS_KEYS if text == "{}" and isinstance(default, msgspec.Struct) else text


@cache
def tables_from(root: type) -> tuple[KeyTable, ...]:
    """Return the table of `root` and all that can stand within it, in its order."""
    paths: dict[type, dict[str, None]] = {}
    owners: dict[type, dict[tuple[type, str], None]] = {}

    def walk(struct: type, path: str, above: tuple[type, ...] = ()) -> None:
        if struct in above:  # a metric's percentiles are metrics
            return
        paths.setdefault(struct, {})[path] = None
        for key in keys_of(struct):
            name = f"{key.name}.NAME" if key.facts["type"].startswith(BY_NAME) else key.name
            for inner in key.structs:
                owners.setdefault(inner, {})[struct, name] = None
                walk(inner, joined(path, name), (*above, struct))

    def title(struct: type) -> str:
        own = min(paths[struct], key=len)
        is_ending = all(f".{path}".endswith(f".{own}") for path in paths[struct])
        return tag_of(struct)[1] or (own if is_ending else struct.__name__)

    walk(root, "")
    tables = []
    for struct, places in paths.items():
        uses = dict.fromkeys(joined(title(owner), key) for owner, key in owners.get(struct, {}))
        place = tuple(places), tuple(uses)
        tables.append(KeyTable(struct, title(struct), tag_of(struct)[0], *prose_of(struct), keys_of(struct), *place))
    return tuple(tables)


def joined(path: str, key: str) -> str:
    """Return the dotted name of a key at a path, which is empty at the top."""
    return f"{path}.{key}" if path else key


def all_entries() -> list[Entry]:
    """Return everything that has a meaning, what people ask for most first."""
    tables = tables_from(Scenario)
    plain = sorted((table for table in tables if not table.is_of_profile), key=lambda table: bool(table.tag_field))
    entries = [entry for table in plain for entry in _of_keys(table, "scenario key")]
    for kind, meanings in (("metric", METRICS), ("symbol", SYMBOLS)):
        for one in meanings:
            percentiles = PERCENTILES if one.percentiles else ()
            names = (one.name, one.symbol, *(percentile_name(one.name, each) for each in percentiles))
            facts = {"unit": one.unit, "symbol": one.symbol, "equation": one.equation, "source": one.source}
            entries.append(_entry(kind, names, one.what, facts | {"percentiles": ", ".join(percentiles)}))
    entries += [entry for table in tables if table.is_of_profile for entry in _of_keys(table, "profile key")]
    of_model = tables_from(StarPrediction)
    entries += [entry for table in of_model for entry in _of_keys(table, "quantity of the analytic model")]
    for struct, kind, before in (
        (StarInputs, "input of the analytic model", ""), (Row, "column of the record table", ""),
        (RunHeader, "field of the run header", "header"), (SignalRow, "column of a signal file", ""),
        (Accelerator, "key of a device's file", "device"),
    ):  # fmt: skip
        entries += [_of_key(key, kind, [joined(before, key.name)]) for key in keys_of(struct)]
    for table in tables:
        if table.tag_field or table.title[:1].isupper():
            keys = ", ".join(key.name for key in table.keys) or "none"
            what, facts = f"{table.first}\n\n{table.prose}".strip(), {"where": ", ".join(table.uses), "keys": keys}
            entries.append(_entry(table.tag_field or "table", (table.title, table.struct.__name__), what, facts))
    of_a_plan = PLAN.read_text().partition("| line | meaning |")[2].partition("\n\n")[0]
    for kind, page in (("word", GLOSSARY.read_text()), ("line of a plan", of_a_plan)):
        for here, there in re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE):
            names = tuple(word.strip(" `") for word in re.split(r"[;,]| \(", here.replace(")", "")))
            if names != HEADING:
                entries.append(_entry(kind, names, re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", there), {}))
    return entries


def entries_json() -> str:
    """Return the file that `explain` and `init` read: an entry a line."""
    entries = ",\n".join(msgspec.json.encode(entry).decode() for entry in all_entries())
    return f"[\n{entries}\n]\n"


def _of_keys(table: KeyTable, kind: str) -> Iterator[Entry]:
    """Yield an entry for each key of a table, by all the dotted names that it has."""
    said = f'key of the {table.tag_field} "{table.title}"' if table.tag_field else kind
    for key in table.keys:
        yield _of_key(key, said, [joined(path, key.name) for path in (table.title, *table.paths)], table.holders)


def _of_key(key: Key, kind: str, names: list[str], holders: tuple[str, ...] = ()) -> Entry:
    facts = {label: text for label, text in key.facts.items() if label != "default" or "key" in kind}
    inner = [inside.name for struct in key.structs if not tag_of(struct)[0] for inside in keys_of(struct)]
    facts |= {"keys": ", ".join(inner), "where": ", ".join(holders)}
    return _entry(kind, (*names, key.facts.get("symbol", "")), key.what, facts)


def _entry(kind: str, names: tuple[str, ...], what: str, facts: dict[str, str]) -> Entry:
    aliases = tuple(dict.fromkeys(filter(None, names)))
    return Entry(names[0], kind, aliases, what, {label: text for label, text in facts.items() if text})


def _one_line(text: str) -> str:
    return " ".join(text.split())
