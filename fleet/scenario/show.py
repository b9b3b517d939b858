"""A settled fleet in rows for people: what a scenario really runs, station by station."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields

from fleet.policies.shapes import CHAIN, Shape
from fleet.scenario.arrivals import Trace
from fleet.scenario.facts import devices_of
from fleet.scenario.lengths import TEXTS
from fleet.scenario.names import BATCH, ROUTER, verifier_name
from fleet.scenario.settled import Fleet, SettledLink
from fleet.times.describe import formula_ms
from fleet.times.effects import IdleEffect
from fleet.times.overhead import Overhead
from fleet.times.station_times import DrafterTimes
from fleet.times.step_time import Constant, LinkTime, StepTime

Row = tuple[str, str, str]
MANY = 6  # values of a parameter that are still listed one by one


def describe_fleet(fleet: Fleet) -> list[Row]:
    """Rows of place, what, and value with its unit; k: tokens, n: tokens of context, r: further rows of m tokens."""
    return [
        *_whole(fleet),
        *(_batch(fleet) if fleet.batch else [*_drafters(fleet), *_verifiers(fleet), *_devices(fleet), *_links(fleet)]),
        *_faults(fleet),
    ]


def _whole(fleet: Fleet) -> Iterator[Row]:
    workload, place = fleet.workload, fleet.name
    if fleet.profile_digest:
        yield place, "profile", f"{fleet.profile} ({fleet.basis}; digest {fleet.profile_digest})"
    else:
        yield place, "profile", "none: times are unknown"
    yield place, "streams", _streams(fleet)
    file = _file(fleet)
    yield (
        place,
        "requests",
        f"{workload.requests}" + (f" at most, as {file} has them" if file else ""),
    )
    lengths = f"prompts of {_length(workload.prompt_tokens)}, answers of {_length(workload.new_tokens)}"
    yield (
        place,
        "lengths",
        f"as {file} has them" if file else lengths,
    )
    if workload.lengths in TEXTS:
        yield place, f"lengths like {workload.lengths}", TEXTS[workload.lengths].source
    yield place, "sampling", f"temperature {workload.temperature:g}, {fleet.precision}"
    yield place, "acceptance", _rule(fleet.acceptance) if fleet.acceptance else "unknown"
    room = fleet.room
    yield place, "room of a row", f"{room.longest_row} tokens, {room.overshoot} of them beyond the text"
    if fleet.in_turn:
        yield place, "longest draft", f"{room.longest_draft} levels"
    if fleet.slo is not None:
        goals = ", ".join(f"{name} up to {_ms(limit_s)}" for name, limit_s in fleet.slo.limits_s.items())
        yield place, "goals of a request", goals
    if fleet.cost is not None:
        drafters, targets = devices_of(fleet)
        what = [f"{fleet.cost.per_hour(drafters, targets):g} {fleet.cost.unit} an hour"] * fleet.cost.has_prices
        what += [f"{fleet.cost.watts(drafters, targets):g} W"] * fleet.cost.has_watts
        yield place, "cost", f"{', '.join(what)}: devices of drafters {drafters}, of targets {targets}"
    yield place, "seed", str(fleet.seed)


def _file(fleet: Fleet) -> str:
    """The file that tells the requests' lengths, if one does."""
    arrivals = fleet.workload.arrivals
    trace = arrivals.file if isinstance(arrivals, Trace) else ""
    lengths = fleet.workload.lengths if fleet.workload.lengths not in TEXTS else ""
    return fleet.workload.conversations or trace or lengths


def _streams(fleet: Fleet) -> str:
    if fleet.streams:
        return f"{fleet.streams} in a closed loop"
    arrivals = fleet.workload.arrivals
    return "one a request, " + (f"arriving by {_rule(arrivals)}" if arrivals else "all at once")


def _drafters(fleet: Fleet) -> Iterator[Row]:
    given = fleet.drafters
    if not given.count:
        yield "drafters", "count", "0: targets decode alone"
        return
    for first, last, times in _ranges(given.times, given.count) or [(0, given.count - 1, None)]:
        place = _span(fleet.drafter_name(first), fleet.drafter_name(last))
        yield place, "device", given.device or "its own"
        if given.profile:
            yield place, "profile", given.profile
        lengths = "as granted" if fleet.verifiers.allocate else _rule(given.allocate)
        lengths = lengths if fleet.in_turn else "token by token"
        by = "nobody: replayed, it waits" if given.kind == "replayed" else f"{given.kind} {given.model}"
        yield place, "drafts", f"{lengths}, {_shape(given.shape)}, by {by}"
        rules = {"order": given.order, "admit": given.admit, "warm_up": given.warm_up, "group": given.group}
        yield place, "rules", ", ".join(f"{name} {_rule(rule)}" for name, rule in rules.items())
        yield (
            place,
            "while its targets verify",
            "drafts for others, or waits" if fleet.in_turn else f"goes on: {_rule(given.overlap)}",
        )
        if given.cache_tokens:
            yield place, "cache", f"{given.cache_tokens} tokens of context"
        if given.lease_s:
            yield place, "lease", f"ends the session of a target that owes an answer for {given.lease_s:g} s"
        if given.limits_per_s:
            limits = ", ".join(f"{limit:g}" if limit else "any number" for limit in given.limits_per_s)
            yield place, "limits", f"{limits} rounds/s for targets 1, 2, ..., and so on as the last"
        if times is not None:
            yield from _drafter_times(place, times)
    if given.route is not None:
        yield ROUTER, "route", f"{_rule(given.route)}, on views {given.view_delay_s:g} s old; moves by {given.move}"


def _drafter_times(place: str, times: DrafterTimes) -> Iterator[Row]:
    yield place, "draft, S(d)", _step(times.draft)
    yield place, "prefill", _step(times.prefill)
    if times.transfer != StepTime():
        yield place, "transfer", _step(times.transfer)
    if times.catch_up_s:
        yield place, "catching up after full acceptance", _ms(times.catch_up_s)
    if times.idle != IdleEffect():
        gaps = zip(times.idle.gaps_s, times.idle.slowdowns, strict=True)
        yield place, "draft after an idle gap", ", ".join(f"{_ms(gap_s)}: x {slow:.3g}" for gap_s, slow in gaps)
    yield from _overhead(place, times.overhead)


def _verifiers(fleet: Fleet) -> Iterator[Row]:
    given = fleet.verifiers
    for first, last, times in _ranges(given.times, given.count) or [(0, given.count - 1, None)]:
        place = _span(verifier_name(first), verifier_name(last))
        yield place, "device", given.device or "its own"
        if given.profile:
            yield place, "profile", given.profile
        drawn = fleet.drafters.kind == "replayed"
        target = "replayed, accepts as drawn from `acceptance`" if drawn else f"{given.kind} {given.model}"
        yield place, "target", f"{target}, rule {given.rule}"
        yield place, "rules", f"group {_rule(given.group)}" + (", padded" if given.padded else "")
        if given.allocate is not None:
            yield place, "grants", _rule(given.allocate)
        if given.patience.patience_s:
            waits, again = f"{given.patience.patience_s:g} s", f"{given.patience.rejoin_s:g} s"
            yield place, "patience", f"waits {waits} for a draft, then decodes alone and asks again every {again}"
        if any(given.priorities):
            yield place, "priorities", ", ".join(str(given.priority(target)) for target in range(first, last + 1))
        if times is not None:
            for name in ("verify", "prefill", "decode"):
                yield place, name, _step(getattr(times, name))
            yield from _overhead(place, times.overhead)


def _batch(fleet: Fleet) -> Iterator[Row]:
    given = fleet.batch
    assert given is not None
    drafters = fleet.drafters
    yield BATCH, "rule", _rule(given.rule) + (", padded" if given.padded else "")
    yield BATCH, "lengths", f"{_rule(given.allocate)}, {_shape(drafters.shape)}"
    yield BATCH, "drafter", f"{drafters.kind} {drafters.model}"
    yield BATCH, "target", f"{fleet.verifiers.model}, rule {fleet.verifiers.rule}"
    if given.times is not None:
        for name in ("draft", "draft_prefill", "prefill", "verify", "realign"):
            yield BATCH, name, _step(getattr(given.times, name))
        yield from _overhead(BATCH, given.times.overhead)


def _devices(fleet: Fleet) -> Iterator[Row]:
    for name, device in fleet.devices.items():
        place = f"device {name}"
        yield place, "sharing", device.sharing
        if device.sharing == "contended":
            yield place, "steps at once", ", ".join(f"{k}: x {x:.3g}" for k, x in enumerate(device.contention, start=1))


def _faults(fleet: Fleet) -> Iterator[Row]:
    for fault in fleet.faults:
        told = {field.name: getattr(fault, field.name) for field in fields(fault) if _differs(fault, field)}
        told.pop("node", None)
        what = ", ".join(f"{name} = {_value(value)}" for name, value in told.items())
        yield fault.node or "all links", f"fault: {fault.__struct_config__.tag}", what


def _links(fleet: Fleet) -> Iterator[Row]:
    if not fleet.drafters.count:
        return
    drafters = _ranges(fleet.drafters.times, fleet.drafters.count)
    targets = _ranges(fleet.verifiers.times, fleet.verifiers.count)
    for row, (first, last, _) in zip(fleet.links, drafters, strict=False):
        for link, (low, high, _) in zip(row, targets, strict=False):
            ends = (
                _span(fleet.drafter_name(first), fleet.drafter_name(last)),
                _span(verifier_name(low), verifier_name(high)),
            )
            yield " - ".join(ends), "link, one way", _link(link)


def _ranges(times: Sequence[Any], count: int) -> list[tuple[int, int, Any]]:
    """First number, last number and times of each range of stations that are alike."""
    ends = [entry.first - 1 for entry in times[1:]] + [count - 1]
    return [(entry.first, end, entry) for entry, end in zip(times, ends, strict=True)] if times else []


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} .. {last}"


def _rule(rule: msgspec.Struct) -> str:
    """A policy or model: its name, and the parameters that differ from their defaults."""
    name = str(rule.__struct_config__.tag)
    given = [f"{field.name} = {_value(getattr(rule, field.name))}" for field in fields(rule) if _differs(rule, field)]
    return f"{name} ({', '.join(given)})" if given else name


def _differs(rule: msgspec.Struct, field: FieldInfo) -> bool:
    return field.required or getattr(rule, field.name) != field.default


def _value(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > MANY:
        return f"{len(value)} of them"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shape(shape: Shape) -> str:
    if shape == CHAIN:
        return "a chain"
    return (
        f"a tree of {list(shape.branching)} children by level"
        if shape.kind == "tree"
        else (f"a dynamic tree, {shape.width} wide, {shape.most} nodes at most")
    )


def _length(length: Any) -> str:
    if isinstance(length, int):
        return f"{length} tokens"
    law = "" if length.cv is None else f", lognormal with cv {length.cv:.3g}, {length.drawn_mean:.4g} on average"
    return f"{length.low} to {length.high} tokens{law}"


def _step(time: StepTime) -> str:
    return formula_ms(time) + _spread(time.spread)


def _spread(spread: Any) -> str:
    return "" if isinstance(spread, Constant) else f", spread {spread.__struct_config__.tag}"


def _link(link: SettledLink) -> str:
    time: LinkTime = link.time
    rate = f", {time.bandwidth_bytes_per_s / 1e6:.3g} MB/s" if time.bandwidth_bytes_per_s else ""
    return f"{_ms(time.latency_s)}{rate}{_spread(time.spread)}" + (", stated" if link.held else "")


def _overhead(place: str, overhead: Overhead) -> Iterator[Row]:
    for field in fields(overhead):
        delay = getattr(overhead, field.name)
        if delay.mean_s:
            yield place, f"overhead, {field.name}", _ms(delay.mean_s) + _spread(delay.spread)


def _ms(time_s: float) -> str:
    return f"{1000 * time_s:.3g} ms"
