"""Tables that all pages have: metrics, the resolved scenario, the labelled numbers of its profile, provenance."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from specfleet.experiments.console.printing import interval
from specfleet.experiments.report.page import Cell, Grid
from specfleet.fleet.records.metrics.glossary import METRICS, PERCENTILES
from specfleet.fleet.records.metrics.window import Metric, percentile_values
from specfleet.fleet.records.run import RunHeader
from specfleet.fleet.scenario.changes import flat
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.show import describe_fleet
from specfleet.fleet.scenario.sides import known_profiles, shared_profile
from specfleet.fleet.times.labels import label_of, warning_of
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

OF_ENGINE = ("precision", "model")  # keys that only the engine reads
FEW = 8  # numbers of a list that are shown one by one


def label_in(world: str, replayed: Sequence[str]) -> str:
    """Return the label of a run's metrics; `replayed`: its sides without a model."""
    return "simulated" if world != "engine" else "replayed" if replayed else "measured"


def known_as(label: str, basis: str) -> str:
    """Say how the numbers of runs with this label are known."""
    if label == "measured":
        return "Numbers are measured: a run of the engine on real hardware."
    if label == "replayed":
        waited = f"replayed stations waited for step times that are {basis or 'stated'}"
        return f"Numbers are of a run of the engine, in which {waited}."
    return f"Numbers are simulated; {times_known(basis)}."


def times_known(basis: str) -> str:
    """Say how step times are known, with the warning that they need."""
    return warning_of(basis) or f"step times are {basis}"


def metrics_grid(metrics: Mapping[str, Metric], label: str) -> Grid:
    """Return all metrics of a run, with their intervals and percentiles, their meaning and how they are known."""
    meanings = {meaning.name: meaning.what.replace("`", "") for meaning in METRICS}
    rows = [
        (name, clipped(metric.value, metric.unit), *metric.ends, *percentile_values(metric), metric.unit,
         interval(metric) if math.isnan(metric.ends[0]) else "", label, meanings.get(name, ""))
        for name, metric in metrics.items()
    ]  # fmt: skip
    headings = ("metric", "value", "low", "high", *PERCENTILES, "unit", "interval", "label", "what it is")
    return Grid("All metrics", headings, rows, "low and high: the ends of the 95 % interval.")


def clipped(value: float, unit: str) -> float:
    """Return a value as it is shown, whatever rounding of times makes of it: a share is at most 1, no time 10^-14 s."""
    return min(value, 1.0) if unit.startswith("share") else 0.0 if abs(value) < 1e-12 else value


def scenario_grids(fleet: Fleet, scenario: Scenario, note: str = "", world: str = "sim") -> list[Grid]:
    """Return the resolved scenario, as far as its world reads it, and the numbers of each of its profiles."""
    all_profiles = (shared_profile(scenario), *known_profiles(scenario))
    profiles = {profile.digest(): profile for profile in all_profiles if profile is not None}
    rows = [row for row in describe_fleet(fleet) if world == "engine" or row[1] not in OF_ENGINE]
    resolved = Grid("The resolved scenario", ("where", "what", "value"), rows, note)
    return [resolved, *map(profile_grid, profiles.values())]


def profile_grid(profile: HardwareProfile) -> Grid:
    """Return the numbers of a profile that are not zero, each with its label and its source."""
    content = msgspec.to_builtins(msgspec.structs.replace(profile, measured={}, provenance={}, sources={}))
    calibrated = bool(profile.measured or profile.provenance) and not profile.sources
    rows = list(_numbers(content, profile, calibrated))
    note = "What is not listed is zero, or at its default."
    return Grid(f"Step times and delays: profile {profile.name}", ("number", "value", "label", "source"), rows, note)


def _numbers(content: Mapping[str, Any], profile: HardwareProfile, calibrated: bool) -> Iterator[tuple[Cell, ...]]:
    default = dict(flat(msgspec.to_builtins(HardwareProfile("", StepTime(), StepTime()))))
    for name, value in flat(content):
        if isinstance(value, (str, bool)) or not value or default.get(name) == value:
            continue
        source = profile.sources.get(name, "")
        if not source and not calibrated:
            source = next((text for key, text in profile.sources.items() if name.startswith(f"{key}.")), "")
        origin = source or (f"calibrated, profile {profile.digest()}" if calibrated else "no source is given")
        label = "fitted" if calibrated else label_of(source) if source else "assumed"
        yield name, float(value) if isinstance(value, (int, float)) else _list(value), label, origin


def _list(values: Any) -> str:
    """Return a list on one line, or how long it is."""
    items = list(values)
    plain = all(isinstance(item, (int, float)) for item in items)
    return ", ".join(f"{item:.4g}" for item in items) if plain and len(items) <= FEW else f"{len(items)} values"


def run_grid(header: RunHeader, digest: str) -> Grid:
    """Return where a run comes from."""
    facts = {
        "digest of the records": digest,
        "world": header.world,
        "scenario": f"{header.scenario.name}, digest {header.scenario_digest}",
        "seed": str(header.scenario.seed),
        "profile": f"{header.fleet.profile or 'none'}, digest {header.profile_digest or '-'}",
        "path": header.path,
        "played back": ", ".join(header.played),
        "replayed stations": ", ".join(header.replayed),
        **{f"version of {name}": version for name, version in header.versions.items()},
        **{f"host: {name}": text for name, text in header.host.items()},
    }
    return facts_grid({name: text for name, text in facts.items() if text})


def facts_grid(facts: Mapping[str, str]) -> Grid:
    """Return facts on where results come from."""
    return Grid("Where this comes from", ("what", "value"), [(name, str(text)) for name, text in facts.items()])
