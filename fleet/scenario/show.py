"""A resolved fleet in rows for people: each key with its value, station by station."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec.structs import fields

from specfleet.fleet.inputs.strict import name_key
from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.scenario.facts import devices_of
from specfleet.fleet.scenario.lengths import Between, mean_tokens
from specfleet.fleet.scenario.names import ROUTER, verifier_name
from specfleet.fleet.scenario.resolved import Fleet, ResolvedDrafters, ResolvedLink, ResolvedVerifiers
from specfleet.fleet.scenario.workload import has_file
from specfleet.fleet.scenario.writing import changed, tag_of
from specfleet.fleet.times.describe import formula_ms
from specfleet.fleet.times.overhead import Delay
from specfleet.fleet.times.step_time import LinkTime, StepTime

Row = tuple[str, str, str]
TITLES = {"hidden": "hidden, all states that a draft reads"}
MANY = 6  # longest list of a parameter's values that is printed in full
OF_DEMO = (("precision", "float32"), ("model", "demo"), ("prompts", "demo/evaluation"))  # defaults
OF_PLACES = ("name", "seed", "profile", "drafters", "verifiers", "devices", "faults", "cost")
OF_WORLDS = (
    "links", "link_ranges", "one_clock", "measure", "profile_digest", "basis", "needs", "workload", "lengths", "room",
)  # fmt: skip


def describe_fleet(fleet: Fleet) -> list[Row]:
    """Return rows of place, key, and value with its unit; k: tokens, n: tokens of context, r: further rows of m tokens.

    Keys that are empty or zero are left out.
    """
    rows = [*_whole(fleet), *_stations(fleet), *_links(fleet)]
    rows += [row for name, device in fleet.devices.items() for row in _keys(f"device {name}", device)]
    for fault in fleet.faults:
        parts = {key: value for key, value in changed(fault).items() if key != "node"}
        rows.append((fault.node or "all links", f"fault: {tag_of(type(fault))[1]}", _pairs(parts)))
    return rows


def without_demo(fleet: Fleet, rows: Sequence[Row]) -> list[Row]:
    """Return rows without the engine's default models, prompts and precision where its times were not measured."""
    is_absent = bool(fleet.profile_digest) and fleet.basis != "measured"
    return [row for row in rows if not (is_absent and row[1:] in OF_DEMO)]


def _whole(fleet: Fleet) -> Iterator[Row]:
    basis = f"{fleet.profile} ({fleet.basis}; digest {fleet.profile_digest})"
    yield fleet.name, "profile", basis if fleet.profile_digest else "none: times are unknown"
    yield from _keys(fleet.name, fleet, (*OF_PLACES, *OF_WORLDS))
    unused = ("prompt_tokens", "new_tokens") if has_file(fleet.workload) else ()
    yield from _keys(fleet.name, fleet.workload, unused)
    yield from _keys(fleet.name, fleet.room)
    if fleet.cost is not None:
        drafters, targets = devices_of(fleet)
        price = f"{fleet.cost.per_hour(drafters, targets):g} {fleet.cost.unit} an hour"
        yield fleet.name, "cost", f"{price}: devices of drafters {drafters}, of targets {targets}"
    yield fleet.name, "seed", str(fleet.seed)


def _stations(fleet: Fleet) -> Iterator[Row]:
    drafters, verifiers = fleet.drafters, fleet.verifiers
    if not drafters.count:
        yield "drafters", "count", "0: targets decode alone"
    for first, last, times in _ranges(drafters):
        place = _span(fleet.drafter_name(first), fleet.drafter_name(last))
        yield place, "model", fleet.drafter_model(first)
        yield from _keys(place, drafters, ("count", "targets", "depth", "model", "models", "times", "route"))
        yield from _keys(place, times, ("first",))
    if drafters.route is not None:
        yield ROUTER, "route", _text("route", drafters.route)
    for first, last, times in _ranges(verifiers):
        place = _span(verifier_name(first), verifier_name(last))
        yield place, "model", fleet.target_model(first)
        alike = msgspec.structs.replace(verifiers, batching=verifiers.batching_of(first), kv_blocks=())
        yield from _keys(place, alike, ("count", "drafters", "model", "models", "speculates", "overlap", "times"))
        yield from _keys(place, times, ("first",))


def _links(fleet: Fleet) -> Iterator[Row]:
    if fleet.drafters.count:
        for row, (first, last, _) in zip(fleet.links, _ranges(fleet.drafters), strict=False):
            for link, (low, high, _) in zip(row, _ranges(fleet.verifiers), strict=False):
                drafting = _span(fleet.drafter_name(first), fleet.drafter_name(last))
                yield f"{drafting} - {_span(verifier_name(low), verifier_name(high))}", "link, one way", _text("", link)


def _keys(place: str, struct: msgspec.Struct | None, left_out: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the non-empty keys of a struct; a struct with all defaults has none."""
    for field in fields(struct) if struct is not None else ():
        value = getattr(struct, field.name)
        if field.name not in left_out and _holds(value):
            yield place, TITLES.get(field.name, field.name.removesuffix("_s")), _text(field.name, value)


def _holds(value: Any) -> bool:
    if isinstance(value, msgspec.Struct) and not name_key(type(value)):
        return bool(changed(value))
    return value not in (None, "", (), {}, 0, False)


def _text(name: str, value: Any) -> str:
    """Return a value with the unit that ends its key's name."""
    match value:
        case StepTime():
            text = formula_ms(value) + _spread(value)
        case LinkTime():
            rate = f", {value.bandwidth_bytes_per_s / 1e6:.3g} MB/s" if value.bandwidth_bytes_per_s else ""
            text = f"{_time(value.latency_s)}{rate}{_spread(value)}"
        case ResolvedLink():
            text = _text("", value.time) + (", stated" if value.held else "")
        case Delay():
            text = _time(value.mean_s) + _spread(value)
        case Between() if value.mean is not None:
            text = f"{_pairs(changed(value))}; the mean between low and high is {mean_tokens(value):.4g}"
        case msgspec.Struct():
            tag = value.kind if isinstance(value, Shape) else tag_of(type(value))[1]
            pairs = _pairs({key: item for key, item in changed(value).items() if key != "kind"})
            text = f"{tag} ({pairs})" if tag and pairs else tag or pairs
        case tuple():
            text = f"{len(value)} of them" if len(value) > MANY else ", ".join(_text(name, item) for item in value)
        case float():
            text = _time(value) if name.endswith("_s") and not name.endswith("per_s") else f"{value:g}"
        case bool():
            text = "yes" if value else "no"
        case _:
            text = str(value)
    return text


def _pairs(content: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {_text(key, value)}" for key, value in content.items() if value is not None)


def _ranges(side: ResolvedDrafters | ResolvedVerifiers) -> list[tuple[int, int, Any]]:
    """First number, last number and times of each range of equal stations; None for unknown times."""
    firsts = [first for first, _ in side.models if side.count]
    lasts = [first - 1 for first in [*firsts[1:], side.count]]
    return list(zip(firsts, lasts, side.times or repeat(None), strict=False))


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} .. {last}"


def _spread(time: StepTime | LinkTime | Delay) -> str:
    kind = tag_of(type(time.spread))[1]
    return "" if kind == "constant" else f", spread {kind}"


def _time(time_s: float) -> str:
    return f"{1000 * time_s:.3g} ms" if time_s < 1 else f"{time_s:g} s"
