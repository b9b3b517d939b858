"""What devices do over a run: how busy each is, what they draw and cost, and which of them is the bottleneck."""

import numpy as np

from fleet.records.columns import Table
from fleet.records.grouped import Floats, Groups, at, find
from fleet.records.intervals import NO_INTERVAL
from fleet.records.tables import at_drafter
from fleet.records.window import Metric, Window
from fleet.scenario.cost import J_PER_KWH, MILLION, per_million_tokens
from fleet.scenario.facts import devices_of
from fleet.scenario.names import BATCH, ROUTER
from fleet.scenario.settled import Fleet

BUSY = "share of time"


def busy_s(window: Window, rows: Table) -> Floats:
    """How long the steps of these stations ran within each batch, one station after another: shape (batches,)."""
    steps = steps_of(rows)
    return window.within(steps.begun_s, steps.ended_s)


def steps_of(rows: Table) -> Table:
    """Return one row for each finished step, as they ended: station, kind, begun_s and ended_s in seconds."""
    begun, done = (rows.where(rows.event.among(event)) for event in ("start", "done"))
    ended = done.where(np.sort(Groups(done.station, done.step).first))
    steps = Groups(begun.station, begun.step)
    named = begun.station.codes[steps.first], begun.step[steps.first]
    place = find((ended.station.codes, ended.step), named)
    begun_s = at(begun.time_s[steps.first], place)
    table = Table.of(station=ended.station, kind=ended.kind, begun_s=begun_s, ended_s=ended.time_s)
    return table.where(~np.isnan(begun_s))


def energy(window: Window, steps: Table, fleet: Fleet, tokens: Floats) -> dict[str, Metric]:
    """Energy of all devices over the window: by the watts of `[cost]`, or else the profile's and what each device did.

    `steps`: as `steps_of` tells. `tokens`: that were committed in each batch of the window.
    """
    devices, power = devices_of(fleet), fleet.power
    if fleet.cost is not None and fleet.cost.has_watts:
        energy_j = np.full_like(tokens, fleet.cost.watts(*devices) * window.batch_s)
    elif power is not None:
        working = ~steps.kind.among("")
        drafting = working & (steps.kind.among("draft", "draft_prefill") | at_drafter(steps))
        kinds = (steps.where(kind) for kind in (drafting, working & ~drafting))
        draft_s, other_s = (window.within(of_kind.begun_s, of_kind.ended_s) for of_kind in kinds)
        of_target = fleet.target_power or power
        energy_j = draft_s * power.draft_w + other_s * of_target.verify_w
        for count, working_s, idle_w in zip(devices, (draft_s, other_s), (power.idle_w, of_target.idle_w), strict=True):
            energy_j += (count * window.batch_s - working_s) * idle_w
    else:
        return {}
    return {
        "power_w": window.rate(energy_j, "W"),
        "energy_j_per_token": window.ratio(energy_j, tokens, "J/token"),
        "energy_kwh_per_million_tokens": window.ratio(
            energy_j * MILLION / J_PER_KWH, tokens, "kWh/million tokens"
        ),
    }  # fmt: skip


def cost(window: Window, fleet: Fleet, tokens: Floats) -> dict[str, Metric]:
    """What a million tokens cost by the prices of `[cost]`, whose devices are paid for whether they work or not."""
    prices = fleet.cost
    if prices is None or not prices.has_prices:
        return {}
    each = per_million_tokens(prices.per_hour(*devices_of(fleet)), 1.0) * window.batch_s
    unit = f"cost/million tokens, {prices.unit}" if prices.unit else "cost/million tokens"
    return {"cost_per_million_tokens": window.ratio(np.full_like(tokens, each), tokens, unit)}


def loads(window: Window, steps: Table, fleet: Fleet) -> dict[str, Metric]:
    """Load of the targets, and the busiest station or shared device with its load; `steps`: as `steps_of` tells."""
    steps = steps.where(~steps.kind.among("") & ~steps.station.among(ROUTER))
    metrics = {}
    if fleet.batch is None:
        of_targets = steps.where(~at_drafter(steps))
        working_s = window.within(of_targets.begun_s, of_targets.ended_s)
        metrics["target_load"] = window.rate(working_s / fleet.verifiers.count, BUSY)
    busiest = max(_shares(window, steps, fleet).items(), key=lambda each: each[1], default=None)
    if busiest is not None:
        metrics["bottleneck"] = Metric(busiest[1], *NO_INTERVAL, f"{BUSY}, {busiest[0]}")
    return metrics


def _shares(window: Window, steps: Table, fleet: Fleet) -> dict[str, float]:
    """Share of the window in which each station works, or each device that several stations share, by its name."""
    begun_s, ended_s = (np.clip(each, window.edges_s[0], window.edges_s[-1]) for each in (steps.begun_s, steps.ended_s))
    station, drafting = steps.station, at_drafter(steps)
    shares = {}
    own = np.ones(len(steps), dtype=bool)
    for device in fleet.devices:
        sides = (fleet.drafters.device == device, fleet.verifiers.device == device)
        there = np.where(drafting, *sides)
        own &= ~there
        shares[f"device {device}"] = _together_s(begun_s[there], ended_s[there]) / window.length_s
    busy = np.bincount(station.codes[own], (ended_s - begun_s)[own], minlength=len(station.words)) / window.length_s
    alone = {name: float(busy[station.words.index(name)]) for name in station[own].present()}
    return shares | {("the batch" if name == BATCH else name): share for name, share in alone.items()}


def _together_s(begun_s: Floats, ended_s: Floats) -> float:
    """How long one stretch of time at least was under way."""
    if not len(begun_s):
        return 0.0
    order = np.argsort(begun_s)
    begun_s, ended_s = begun_s[order], np.maximum.accumulate(ended_s[order])
    before_s = np.concatenate([begun_s[:1], ended_s[:-1]])
    return float(np.maximum(ended_s - np.maximum(begun_s, before_s), 0.0).sum())
