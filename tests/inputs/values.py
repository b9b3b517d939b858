"""Mutations of plain content, as TOML and JSON hold it: one place of a tree becomes something else."""

import copy
import datetime
import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

Steps = tuple[Any, ...]

NUMBERS = (
    0, -1, 1, 2, 0.0, -0.0, 0.5, 1.0, -0.5, 1.5, 1e-300, 5e-324, 1e30, -1e30, 1e300, 1.7e308, 10**9, 10**12, 2**31,
    2**63 - 1, 2**63, -(2**63), 2**64, 10**18, 10**30, -(10**30), 10**400, math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS = (
    "", " ", "text", "fifo", "one", "demo", "é", "\u0000", "a\u0000b", "\n", "\u2028", "a" * 5000, "../../..", "/",
    ".",
    "/dev/null", "/dev/zero", "nan", "inf", "1", "-1", "10ms", "70%", "2KiB", "1Gbit", "10 parsecs", "1e9999ms",
    "9" * 400 + "s",
    "-5ms", "[1, 2]", "a,b", "{}", "$", "`", "%s", "{0}", "💥", "0x10", "true",
)  # fmt: skip

NAMES = (
    "fifo", "priority", "deadline", "everyone", "none", "one", "batch", "wait", "skip", "decode", "in-turn",
    "ahead", "affinity", "round-robin", "shortest-queue", "predicted",
    "fixed", "fixed-share", "random-share", "goodspeed", "dsde", "adaedl", "own", "target",
    "realign", "rollback", "same-length", "chain", "tree", "dynamic", "model", "eagle", "lookup", "real",
    "replayed", "rejection", "without-replacement", "top-k", "match", "turns", "contended",
    "geometric", "beta-geometric", "recorded", "agreement", "ratios", "signals", "poisson", "trace",
    "constant", "exponential", "quantiles", "rtx-4090", "profile.json", "trace.csv", "gpu", "demo",
)  # fmt: skip


def deep(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return inner


def strange(rng: random.Random, is_toml: bool) -> Any:
    """Return a value that hardly any key expects."""
    others: list[Any] = [True, False, [], {}, [[]], [{}], {"": 1}, {"a": {"b": {"c": 1}}}, [1, "two", 3.0]]
    others += [deep(40), deep(200)]
    others += (
        [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)] if is_toml else [None, None]
    )
    return rng.choice([rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(others)])


def near(value: Any, rng: random.Random) -> Any:
    """Return a value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice(
                [0, 1, 2, 3, 7, 50, value + 1, value - 1, 2 * value, -value, 10 * value, 300, 10**9, 10**15]
            )
        case float():
            return rng.choice(
                [0.0, 1.0, 1e-12, 1e-3, 1e3, 1e6, 1e9, value / 3, 3 * value, -value, 1 - value, 1.0000001, 0.9999999]
            )
        case str():
            return rng.choice(NAMES)
        case list():
            return rng.choice([value[:1], value[1:], value[::-1], value + value, []])
    return {key: item for key, item in value.items() if rng.random() < 0.5} if value else {"a": 1}


def crossed(content: dict[str, Any], others: Sequence[dict[str, Any]], rng: random.Random) -> tuple[Any, str]:
    """Return a copy of content with a value that another content has at the same place, and what was done."""
    changed = copy.deepcopy(content)
    other = rng.choice(others)
    done = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        way = rng.choice([way for way in places(other) if not any(isinstance(step, int) for step in way)])
        inner, value = changed, other
        for step in way[:-1]:
            inner[step] = inner[step] if isinstance(inner.get(step), dict) else {}
            inner, value = inner[step], value[step]
        inner[way[-1]] = copy.deepcopy(value[way[-1]])
        done.append(".".join(way))
    return changed, f"{', '.join(done)} of another scenario"


def places(content: Any, steps: Steps = ()) -> Iterator[Steps]:
    """Yield the ways to all values within content."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, item in items:
        yield (*steps, key)
        yield from places(item, (*steps, key))


def mutated(content: Any, rng: random.Random, is_toml: bool = False) -> tuple[Any, str]:  # noqa: C901, PLR0911
    """Return a copy of content with one place changed, and what was done."""
    changed = copy.deepcopy(content)
    ways = list(places(changed))
    if not ways or rng.random() < 0.02:
        value = {} if is_toml else strange(rng, is_toml)
        return value, "the whole replaced"
    *folders, last = rng.choice(ways)
    inner = changed
    for step in folders:
        inner = inner[step]
    way = ".".join(map(str, [*folders, last]))
    match rng.choice(
        ["replace", "replace", "near", "near", "near", "near", "scale", "remove", "add", "rename", "repeat", "swap"]
    ):
        case "near":
            inner[last] = near(inner[last], rng)
            return changed, f"{way} = {inner[last]!r:.60}"
        case "remove":
            del inner[last]
            return changed, f"{way} removed"
        case "add" if isinstance(inner, dict):
            name = rng.choice(["extra", "", "a.b", "é", "0", *list(inner)]) + rng.choice(["", "_s", "x"])
            inner[name] = strange(rng, is_toml)
            return changed, f"{'.'.join(map(str, [*folders, name]))} added"
        case "rename" if isinstance(inner, dict):
            inner[f"{last}_"] = inner.pop(last)
            return changed, f"{way} renamed"
        case "repeat" if isinstance(inner, list):
            inner += [copy.deepcopy(inner[last])] * rng.choice([1, 7, 1000])
            return changed, f"{way} repeated"
        case "swap":
            other = rng.choice(ways)
            value = copy.deepcopy(changed)
            for step in other:
                value = value[step]
            inner[last] = value
            return changed, f"{way} from {'.'.join(map(str, other))}"
        case "scale" if isinstance(inner[last], int | float) and not isinstance(inner[last], bool):
            inner[last] *= rng.choice([-1, 0, 0.5, 1e-12, 1e12, 1e200, 10**9, 10**25])
            return changed, f"{way} = {inner[last]!r}"
    inner[last] = strange(rng, is_toml)
    return changed, f"{way} = {inner[last]!r:.60}"


def toml_of(content: dict[str, Any]) -> str:
    """Write content as TOML, a line a key."""
    return "".join(f"{json.dumps(key)} = {_inline(value)}\n" for key, value in content.items())


def _inline(value: Any) -> str:  # noqa: PLR0911  (a line a type)
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case float() if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        case datetime.date():
            return value.isoformat()
        case bool() | str():
            return json.dumps(value)
        case None:
            return '""'
    return repr(value)


def json_of(content: Any) -> str:
    """Write content as JSON; NaN and infinity as Python's writer does, which no reader must take."""
    return json.dumps(content)
