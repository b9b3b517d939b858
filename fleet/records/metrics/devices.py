"""Devices over a run: load, power, cost, and the bottleneck."""

from collections.abc import Sequence

import numpy as np

from specfleet.fleet.records.columns import Table
from specfleet.fleet.records.metrics.findings import Findings
from specfleet.fleet.records.metrics.glossary import COUNTERS
from specfleet.fleet.records.metrics.grouped import Floats
from specfleet.fleet.records.metrics.tables import at_drafter
from specfleet.fleet.records.metrics.window import Metric, Window
from specfleet.fleet.records.power import DeviceCurve, integral
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.facts import devices_of
from specfleet.fleet.scenario.names import DRAFTER, ROUTER, TARGET
from specfleet.fleet.scenario.resolved import Fleet

BUSY = "share of time"


def busy_s(window: Window, steps: Table) -> Floats:
    """Return the time of these steps within each batch: shape (batches,)."""
    return window.within(steps.begun_s, steps.ended_s)


def energy(window: Window, findings: Findings, tokens: Floats) -> dict[str, Metric]:
    """Energy of all devices over the window: by the profile's power and each device's steps, one at a time.

    - `tokens`: committed tokens in each batch of the window.
    """
    fleet, others = findings.fleet, findings.other_steps
    devices, power = devices_of(fleet), fleet.power
    if power is None or any(device.sharing == "contended" for device in fleet.devices.values()):
        return {}
    prefills, rest = others.kind.among("draft_prefill"), ~others.kind.among("", "draft_prefill")
    draft_s = busy_s(window, findings.draft_steps) + busy_s(window, others.where(prefills))
    other_s = busy_s(window, others.where(rest))
    of_target = fleet.target_power or power
    energy_j = draft_s * power.draft_w + other_s * of_target.verify_w
    for count, working_s, idle_w in zip(devices, (draft_s, other_s), (power.idle_w, of_target.idle_w), strict=True):
        energy_j += (count * window.batch_s - working_s) * idle_w
    return {
        "power_w": window.rate(energy_j, "W"),
        "energy_j_per_token": window.ratio(energy_j, tokens, "J/token"),
    }


def cost(window: Window, fleet: Fleet, tokens: Floats) -> dict[str, Metric]:
    """Cost of a million tokens by the prices of `[cost]`, which apply to busy and idle devices alike."""
    prices = fleet.cost
    if prices is None:
        return {}
    batch_cost = per_million_tokens(prices.per_hour(*devices_of(fleet)), 1.0) * window.batch_s
    unit = f"cost/million tokens, {prices.unit}" if prices.unit else "cost/million tokens"
    return {"cost_per_million_tokens": window.ratio(np.full_like(tokens, batch_cost), tokens, unit)}


def loads(window: Window, findings: Findings) -> dict[str, Metric]:
    """Load of the targets, and the busiest station or shared device with its load."""
    fleet, others = findings.fleet, findings.other_steps
    others = others.where(~others.kind.among("") & ~others.station.among(ROUTER))
    drafts = findings.draft_steps
    at_targets_s = busy_s(window, others) + busy_s(window, drafts.where(~at_drafter(drafts)))
    metrics = {"target_load": window.rate(at_targets_s / fleet.verifiers.servers, BUSY)}
    shares = _shares(window, (findings.draft_steps, others), fleet)
    busiest = max(shares.items(), key=lambda share: share[1], default=None)
    if busiest is not None:
        metrics["bottleneck"] = Metric(busiest[1], unit=f"{BUSY}, {busiest[0]}")
    return metrics


def _shares(window: Window, parts: Sequence[Table], fleet: Fleet) -> dict[str, float]:
    """Busy share of the window of each station, or of each device that several stations share, by name."""
    alone: dict[str, float] = {}
    together: dict[str, list[tuple[Floats, Floats]]] = {device: [] for device in fleet.devices}
    for steps in parts:
        begun_s, ended_s = (
            np.clip(moments_s, window.edges_s[0], window.edges_s[-1]) for moments_s in (steps.begun_s, steps.ended_s)
        )
        unshared, drafting = np.ones(len(steps), dtype=bool), at_drafter(steps)
        for device, stretches in together.items():
            there = np.where(drafting, fleet.drafters.device == device, fleet.verifiers.device == device)
            unshared &= ~there
            stretches.append((begun_s[there], ended_s[there]))
        station, lasted_s = steps.station[unshared], (ended_s - begun_s)[unshared]
        busy = np.bincount(station.codes, lasted_s, minlength=len(station.words)) / window.length_s
        for name in station.present():
            alone[name] = alone.get(name, 0.0) + float(busy[station.words.index(name)])
    shares = {
        f"device {device}": _together_s(*map(np.concatenate, zip(*stretches, strict=True))) / window.length_s
        for device, stretches in together.items()
    }
    return shares | {name: alone[name] for name in sorted(alone)}


def _together_s(begun_s: Floats, ended_s: Floats) -> float:
    """Time in which at least one of the intervals was active."""
    if not len(begun_s):
        return 0.0
    order = np.argsort(begun_s)
    begun_s, ended_s = begun_s[order], np.maximum.accumulate(ended_s[order])
    before_s = np.concatenate([begun_s[:1], ended_s[:-1]])
    return float(np.maximum(ended_s - np.maximum(begun_s, before_s), 0.0).sum())


def counters(window: Window, curves: Sequence[DeviceCurve], tokens: Floats) -> dict[str, Metric]:
    """Return the measured energy of a token, and each counter of the drafters' devices and of the targets'.

    Counters are means over time and devices; a device that both sides use counts for both. One is left out where a
    device of the side lacks it, or lacks it in a part of the window. `tokens`: committed ones in each batch.
    """
    metrics = {}
    energies_j = _grown(window, curves, "power_w")
    if energies_j is not None:
        metrics["measured_energy_j_per_token"] = window.ratio(np.sum(energies_j, axis=0), tokens, "J/token")
    for side, prefix in (("drafter", DRAFTER), ("target", TARGET)):
        of_side = [curve for curve in curves if any(name.startswith(prefix) for name in curve.stations)]
        for name, (unit, _) in COUNTERS.items():
            sums = _grown(window, of_side, name)
            if sums is not None:
                metrics[f"measured_{side}_{name}"] = window.rate(np.mean(sums, axis=0), unit)
    return metrics


def _grown(window: Window, curves: Sequence[DeviceCurve], name: str) -> list[Floats] | None:
    """Return by how much each device's counter, summed over time, grew in each batch; None if one is not known."""
    sums = []
    for curve in curves:
        values = {"power_w": curve.energy_j, "utilisation": curve.utilisation}.get(name, curve.graphics_clock_mhz)
        if not values or curve.times_s[0] > window.edges_s[0] or curve.times_s[-1] < window.edges_s[-1]:
            return None
        summed = values if name == "power_w" else integral(curve.times_s, values)
        sums.append(np.diff(np.interp(window.edges_s, curve.times_s, summed)))
    return sums or None
