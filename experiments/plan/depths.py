"""How deep to draft at which load: depths that are level with the best, what others lose, and schedules of servers."""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from specfleet.experiments.plan.candidates import SPLIT
from specfleet.experiments.plan.commands import Schedule, make_schedule, speculative_config
from specfleet.experiments.plan.deployments import MARGIN, Deployment, Estimate, Load, mean_request_s, requests_for
from specfleet.experiments.plan.ranges import slowed
from specfleet.experiments.plan.search import LEAST, SEEDS, Simulations
from specfleet.experiments.plan.serving import load_curve
from specfleet.experiments.plan.trials import INDIFFERENT, simulated
from specfleet.fleet.acceptance.models import AcceptanceModel, deepest, expected_committed
from specfleet.fleet.scenario.resolve import resolve

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the largest load that is carried, to say how deep to draft
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # the same of closed loops, of the planned load
LOOK = 1500  # requests of a simulation of another load, at most
SURE = 1.25  # factor of fitted drafts beyond which all steps may be slow in their place
MAX_IN_FLIGHT = 2048  # requests at once that are simulated to see a limit


class Depths(NamedTuple):
    """Depths under a load, 0 for none, by their time over that of the best one: of a request, or a closed loop's token.

    - `rows`: requests at once at a target. `present`: the depth of a running server.
    """

    load: Load
    rows: float
    times: Mapping[int, float]
    present: int = 0

    @property
    def level(self) -> list[int]:
        """The depths that are as good as the best one; the present one, too, if no other gains over twice as much."""
        now = self.present or None
        return [depth for depth, time in sorted(self.times.items()) if time <= 1 + INDIFFERENT * (1 + (depth == now))]

    @property
    def text(self) -> str:
        """The depths in words: those that are level, and what the present one, one token and none lose."""
        drafts = [depth for depth in self.level if depth]
        span = f"{drafts[0]} to {drafts[-1]}" if len(drafts) > 2 else " and ".join(map(str, drafts))
        best = " and ".join(filter(None, (span, "off" if 0 in self.level else "")))
        others = [depth for depth in dict.fromkeys((self.present or 1, 1, 0)) if depth in {*self.times} - {*self.level}]
        names = [f"at depth {depth}{', as now' * (depth == self.present)}" if depth else "when off" for depth in others]
        lost = ", ".join(f"{self.times[depth] - 1:.0%} {name}" for depth, name in zip(others, names, strict=True))
        what = "request" if self.load.per_s else "token"
        beside = f" (a {what} takes longer by {lost})".replace("inf%", "no end") if lost else ""
        stays = f"; now {self.present}: no change needed" if self.present in drafts else ""
        return f"{best} {'level' if len(self.level) > 1 else 'best'}{beside}{stays}"

    def beside(self, chosen: int | None) -> str:
        """The same, after the depth that is chosen, where goals or the smallest fleet ask for another one."""
        said = self.text if chosen in (None, self.present) else self.text.partition("; now ")[0]
        fastest = said.replace(" best", " fastest", 1)
        return said if chosen in (None, *self.level) else f"{chosen} planned; {fastest}"


def speculate(search: Simulations) -> tuple[list[str], Schedule | None]:
    """Say how deep to draft under the load, and at other loads on these devices; return the best fleet's schedule."""
    fleet = next((made for made in search.best if made.depth), None)
    here = depths_at(search, fleet, search.question.load) if fleet else None
    if fleet is None or here is None:
        return [], None
    planned = fleet.depth if fleet == search.best[0] else None
    name = fleet.candidate.name + f" with {fleet.replicas} targets" * (fleet.replicas != search.best[0].replicas)
    line = f"depths: {f'{name}: ' * (planned is None)}{here.beside(planned)}{_end(here, fleet)}"
    if_slow = if_all_are_slow(fleet, [(search, here)])
    if fleet.candidate.base.verifiers.max_num_seqs == 1 or fleet.drafters:  # the rule for late drafts changes, too
        return [line, *if_slow], None
    known = [depths_at(search, fleet, load) for load in other_loads(search, fleet) if load != search.question.load]
    if planned:  # the depth of its commands
        here = here._replace(times={planned: 1.0})
    loads = sorted((at for at in [here, *known] if at is not None), key=attrgetter("rows"))
    runs = groupby(zip(falling(loads), loads, strict=True), key=lambda pair: pair[0][1])
    said = ", ".join(f"{depth or 'off'} at {span([at.load.text for _, at in run])}" for depth, run in runs)
    unit = loads[0].load.text.lstrip("0123456789.e+-")
    line += f"; by load: {said.replace(unit, '')}{unit}{' (equations)' if fleet.is_slow else ''}"
    schedule = make_schedule(fleet.candidate, falling(loads)) if search.winner is not None else None
    return [line, *schedule_lines(fleet, schedule, planned), *if_slow], schedule if planned else None


def if_all_are_slow(fleet: Deployment, at_loads: Sequence[tuple[Simulations, Depths]]) -> list[str]:
    """Say how deep to draft if all steps of a running server are slow, where the fit says drafts alone."""
    server = fleet.candidate.server
    factor = server.slower["draft"] if server and list(server.slower) == ["draft"] else 1.0
    said = [_if_all_are_slow(search, fleet, at.rows, factor) for search, at in at_loads if factor >= SURE]
    head = f"risk: if all steps are slow, and not drafts alone (x {factor:.3g}), as the fit assumes"
    return [f"{head}: {'; '.join(said)} (equations)"] if all(said) and said else []


def _if_all_are_slow(search: Simulations, fleet: Deployment, rows: float, factor: float) -> str:
    options, load = options_of(search, fleet), search.question.load
    if not {0, fleet.depth} <= options.keys():
        return ""
    present = options.get(fleet.candidate.present) or options[fleet.depth]
    estimate = load_curve(resolve(slowed(search.scenario(present.fleet), 1.0, 1 / factor)))
    of_all = present.curve.request_with(rows) / estimate.request_with(rows)
    made = {depth: slowed(search.scenario(one.fleet), of_all, 1 / factor) for depth, one in options.items()}
    times_s = {depth: mean_request_s(load_curve(resolve(one)), load, fleet.replicas) for depth, one in made.items()}
    over = {depth: time_s / min(times_s.values()) for depth, time_s in times_s.items()}
    said = Depths(load, rows, over, fleet.candidate.present).text if min(times_s.values()) < math.inf else "overloaded"
    return f"at {load.text.partition(' ')[0]} (x {of_all:.3g}): {said}"


def _end(here: Depths, fleet: Deployment) -> str:
    """Say that no deeper drafts were tried where their acceptance ends at the best depth, and how to try them."""
    model = resolve(fleet.scenario(here.load, 1)).acceptance
    if not isinstance(model, AcceptanceModel) or here.level[-1] < (end := deepest(model)):
        return ""
    said = f"--acceptance {expected_committed(model, int(end)):.3g}@{end} goes on at a constant rate"
    return f"; deeper was not tried: acceptance ends at position {end}, {said}"


def falling(loads: Sequence[Depths]) -> list[tuple[float, int]]:
    """Return requests at once and a depth for each load, rising: kept while no other gains over 2 %, else that of a
    running server or the shortest, of those that are level."""
    runs = list[tuple[list[Depths], set[int]]]()
    for at in reversed(loads):
        near = {depth for depth, time in at.times.items() if time <= 1 + 2 * INDIFFERENT}
        last, kept = runs.pop(0) if runs and runs[0][1] & near else ([], near)
        runs.insert(0, ([at, *last], kept & near))
    worst = [(run, {depth: max(at.times[depth] for at in run) for depth in kept}) for run, kept in runs]
    now = loads[0].present or None
    best = [(run, min((max(time - INDIFFERENT * (depth == now), 1 + INDIFFERENT), depth != now, depth)
                      for depth, time in of.items())) for run, of in worst]  # fmt: skip
    return [(at.rows, depth) for run, (*_, depth) in best for at in run]


def span(loads: Sequence[str]) -> str:
    """Say a run of loads."""
    return loads[0] if len(loads) == 1 else f"{re.split('[ /]', loads[0])[0]} to {loads[-1]}"


def options_of(search: Simulations, fleet: Deployment) -> dict[int, Estimate]:
    """Return the fleets that differ from a speculating one by depth alone, by depth; 0 is the same without drafts."""
    usual = msgspec.structs.replace(fleet, depth=0).title
    plain = f"{fleet.at}, no speculation{SPLIT if fleet.prefills else ''}"
    return {
        one.fleet.depth: one
        for one in search.estimates.values()
        if one.fleet.title == plain or msgspec.structs.replace(one.fleet, depth=0).title == usual
    }


def depths_at(search: Simulations, fleet: Deployment, load: Load) -> Depths | None:
    """Return the depths of a speculating fleet at a load; None if it does not carry that.

    Equations say where to look. Simulations decide, of slow fleets those of the search; of others all neighbours of
    level depths are looked at.
    """
    options = options_of(search, fleet)
    times_s = {depth: mean_request_s(one.curve, load, fleet.replicas) for depth, one in options.items()}
    if fleet.is_slow and load == search.question.load:
        own_s = search.sample(fleet).mean("latency_s" if load.per_s else "token_s")
        known = {depth: one.fleet for depth, one in options.items() if search.values[one.fleet.title]}
        times_s = {depth: own_s * max(1 + search.gap(one, fleet).value, 1.0) for depth, one in known.items()}
    elif not fleet.is_slow:
        expected = min(times_s, key=lambda depth: times_s[depth])
        look = {0, 1, expected - 1, expected, expected + 1, fleet.depth, fleet.candidate.present}
        look, times_s = look & options.keys(), {}
        while look:
            times_s |= {depth: _simulated_s(search, options[depth].fleet, load) for depth in look}
            level = [depth for depth, time_s in times_s.items() if time_s <= (1 + INDIFFERENT) * min(times_s.values())]
            look = {depth + step for depth in level for step in (-1, 1)} & options.keys() - times_s.keys()
    best_s = min(times_s.values())
    at_each, curve = load.at_once(fleet.replicas) / fleet.replicas, options[fleet.depth].curve
    rows = min(load.per_s * best_s / fleet.replicas or curve.at_target(at_each), float(curve.rows[-1]))
    over = {depth: time_s / best_s for depth, time_s in times_s.items()}
    return Depths(load, rows, over, fleet.candidate.present) if best_s < math.inf else None


def other_loads(search: Simulations, fleet: Deployment) -> list[Load]:
    """Return lower and higher loads than the planned one, for the devices of a fleet: as many as run at once."""
    load, curve = search.question.load, search.estimates[fleet.title].curve
    if not load.per_s:
        rows = float(curve.rows[-1]) / curve.at_target(load.at_once(fleet.replicas) / fleet.replicas)
        loads = [load.times(factor * min(1.0, rows)) for factor in FACTORS if factor < max(1.0, rows)]
        return [at for at in loads if 0 < at.at_once(fleet.replicas) <= MAX_IN_FLIGHT]
    most = max(one.per_s for one in options_of(search, fleet).values())
    return [load.times(share * (1 - MARGIN) * most / load.per_s) for share in SHARES]


def _simulated_s(search: Simulations, fleet: Deployment, load: Load) -> float:
    """Return the mean time of a request, in a closed loop that of a token of all; infinite if overloaded."""
    if load == search.question.load:  # with the seeds that the answer rests on
        search.run([fleet], SEEDS[2])
        sample = search.sample(fleet)
        return math.inf if sample.mean("overload") else sample.mean("latency_s" if load.per_s else "token_s")
    if not load.per_s:
        return 1 / tokens_per_s(fleet, load)
    values = simulated(search.scenario(fleet, load, LOOK))
    return math.inf if values["overload"] else values["latency_s"]


def tokens_per_s(fleet: Deployment, load: Load) -> float:
    """Simulate a closed loop."""
    in_flight = load.at_once(fleet.replicas)
    requests = max(min(requests_for(in_flight, LEAST[False]), LOOK), 3 * in_flight)
    return simulated(fleet.scenario(load, requests))["throughput"]


def schedule_lines(fleet: Deployment, schedule: Schedule | None, planned: int | None) -> list[str]:
    """Say a schedule of depths; where a printed command has it, the `planned` depth, 0 for several, else the option."""
    if schedule is None:
        return []
    where = speculative_config(fleet.candidate, schedule.deepest, schedule) if planned is None else "in the command"
    if planned and planned < schedule.deepest:
        where += f", with its largest depth as num_speculative_tokens; this load gets {planned}"
    return [f"schedule: {schedule.text}; {where}"]
