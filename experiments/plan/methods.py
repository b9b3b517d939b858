"""Methods of speculation side by side, by requests in flight: what each gives, and from which load on it loses.

Equations choose the depth of each cell and how many targets share a drafter; simulations give the numbers. All cells
have the same requests. Answers vary by a tenth around their length, since equally long ones would stay in step.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec
import numpy as np

from specfleet.experiments.plan.budget import LATE, MAX_TARGETS, Deployment, Load
from specfleet.experiments.plan.candidates import Asked, Candidate, candidates_of
from specfleet.experiments.plan.commands import serve_command
from specfleet.experiments.plan.serving import drafter_share, request_s
from specfleet.experiments.plan.trials import INDIFFERENT, Sample, Trials, Values, gap_between
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Late, Scenario, Workload
from specfleet.fleet.scenario.workload import mean_lengths

MAX_IN_FLIGHT = 4096
SEEDS = 3
MIN_REQUESTS, EACH = 32, 12  # requests of a simulation: at least, and for each one in flight
DRAFTER_LOAD = 0.8  # share of time up to which a drafter gets more targets

Choice = tuple[Deployment, int]
"""A fleet, and the requests in flight at each of its targets."""


class Cell(msgspec.Struct, frozen=True):
    """What a method gives with so many requests in flight at each target.

    - `depth`, `targets`: draft tokens, and targets of a drafter elsewhere; by equations. `late`: what a step does about
      a draft that is late, the better of skip and decode.
    - `tokens_per_s`: of one target, each seed's in `seeds`; `tpot_s`, `ttft_s`: means, in seconds.
    - `devices`: of a target, with its share of a drafter elsewhere.
    - `kv_share`: KV cache that the requests need at their end over that of the target; NaN without a limit.
    - `standing`: best, level (within chance or 1 %), or by how much it is slower.
    """

    method: str
    in_flight: int
    depth: int
    targets: int
    late: Late
    tokens_per_s: float
    tpot_s: float
    ttft_s: float
    per_million: float
    devices: float
    kv_share: float
    seeds: tuple[float, ...]
    standing: str = ""


class Methods(msgspec.Struct, frozen=True):
    """The answer: cells by method and requests in flight, what costs are in, and lines in words."""

    title: str
    in_flight: tuple[int, ...]
    cells: tuple[Cell, ...]
    unit: str
    lines: tuple[str, ...]

    def of(self, method: str) -> list[Cell]:
        """Return the cells of a method."""
        return [cell for cell in self.cells if cell.method == method]


def compare_methods(
    target: str,
    drafts: Sequence[str] = (),
    *,
    acceptance: Sequence[str] = (),
    in_flight: Sequence[int] = (1, 8, 32, 64),
    link: str = "",
    prompt_tokens: int = 800,
    new_tokens: int = 250,
    cost: Sequence[str] = (),
    depth: int = 0,
    jobs: int = 1,
    done: Callable[[str], None] = lambda _what: None,
) -> Methods:
    """Compare ways to draft for a target, by requests in flight.

    - `target`: MODEL@DEVICE, as `estimate` reads it. `drafts`: drafters: MODEL@DEVICE for a small model elsewhere and
      on the target's device, MODEL or a head's name for the target's device alone, "lookup" for prompt lookup.
    - `acceptance`: as `0.8`, or by position `.82,.68,.57`, or of one drafter, `MODEL=.82,.68`.
    - `link`: between targets and drafters elsewhere: `25Gbit+50us`. `cost`: `h100=3`, of an hour of a device.
    - `depth`: the same depth everywhere; 0 takes the best by equations.
    - `done`: called after each simulation with its name.

    Raises InputError, in one line, for what cannot be read or does not fit.

    >>> import specfleet
    >>> found = specfleet.compare_methods("llama-3.1-8b@h100", ["lookup"], acceptance=["0.5"], in_flight=[2])
    >>> [cell.method for cell in found.cells]
    ['no speculation', 'prompt lookup']
    """
    if not in_flight or min(in_flight) < 1 or prompt_tokens < 1 or new_tokens < 2:
        raise InputError("requests in flight and prompt tokens need whole numbers from 1, answer tokens from 2")
    if max(in_flight) > MAX_IN_FLIGHT:
        raise InputError(f"--in-flight {max(in_flight)}: simulated up to {MAX_IN_FLIGHT} requests at a target")
    load = Scenario(workload=Workload(prompt_tokens=prompt_tokens, new_tokens=about(new_tokens)))
    every, unit = candidates_of(Asked(target, tuple(drafts), tuple(acceptance), load, link, tuple(cost)))
    candidates = [one for one in every if _fits(one, depth)]
    left_out = [
        f"left out: {one.name}: the drafter and its cache have no room" for one in every if one not in candidates
    ]
    flights = tuple(sorted(set(in_flight)))
    trials = Trials(done)
    options = [[(fleet, C) for fleet in _fleets(one, C, depth)] for one in candidates for C in flights]
    trials.run([_scenario(*choice) for own in options if len(own) > 1 for choice in own], 1, jobs)
    chosen = [_fastest(own, trials) for own in options]
    trials.run([_scenario(*choice) for choice in chosen], SEEDS, jobs)
    cells = _ranked([_cell(*choice, Sample(tuple(_values(choice, trials)))) for choice in chosen])
    title = f"{target}: prompts of {prompt_tokens} tokens, answers of about {new_tokens}"
    return Methods(title, flights, cells, unit, (*_lines(candidates, cells, flights), *left_out))


def about(tokens: int) -> Between:
    """Return lengths that vary by a tenth."""
    return Between(low=max(1, round(0.9 * tokens)), high=round(1.1 * tokens))


def _fits(one: Candidate, asked: int) -> bool:
    """Whether a request has room beside the drafter; InputError if it has none without one."""
    try:
        return bool(resolve(_scenario(Deployment(one, 1, one.depths_to_try(asked)[-1]), 1)))
    except InputError:
        if one.method == "none":
            raise
        return False


def _fleets(one: Candidate, in_flight: int, asked: int) -> list[Deployment]:
    """Return the fleets of a cell to simulate: depth and targets of a drafter by equations."""
    depths = one.depths_to_try(asked)
    fleet = resolve(_scenario(Deployment(one, 1, depths[0]), in_flight))
    depth = min(depths, key=lambda depth: request_s(fleet, in_flight, depth))
    if one.method != "apart":
        return [Deployment(one, 1, depth)]
    share = drafter_share(fleet, in_flight, depth)
    targets = min(max(int(DRAFTER_LOAD / share), 1), MAX_TARGETS) if share else MAX_TARGETS
    return [Deployment(one, targets, depth, targets, late) for late in LATE]


def _scenario(fleet: Deployment, in_flight: int) -> Scenario:
    """Return a fleet with so many requests in flight at each target."""
    streams = in_flight * fleet.replicas
    scenario = fleet.scenario(Load(in_flight=streams), max(EACH * streams, MIN_REQUESTS))
    return msgspec.structs.replace(scenario, name=f"{fleet.title}, {in_flight} in flight")


def _values(choice: Choice, trials: Trials) -> list[Values]:
    return trials.values[_scenario(*choice).name]


def _fastest(own: Sequence[Choice], trials: Trials) -> Choice:
    """Return the fleet of a cell: of several, the fastest in a first simulation."""
    return own[0] if len(own) == 1 else max(own, key=lambda choice: _values(choice, trials)[0]["throughput"])


def _cell(fleet: Deployment, in_flight: int, tried: Sample) -> Cell:
    seeds = tuple(value / fleet.replicas for value in tried.values("throughput"))
    tokens_per_s = float(np.mean(seeds))
    resolved = resolve(_scenario(fleet, in_flight))
    batching, tokens = resolved.verifiers.batching, sum(mean_lengths(resolved.workload))
    room = batching.kv_blocks * batching.block_size
    return Cell(
        method=fleet.candidate.name, in_flight=in_flight, depth=fleet.depth, targets=fleet.replicas, late=fleet.late,
        tokens_per_s=tokens_per_s, tpot_s=tried.mean("tpot_s"), ttft_s=tried.mean("ttft_s"),
        per_million=per_million_tokens(fleet.cost_per_hour / fleet.replicas, tokens_per_s),
        devices=sum(fleet.devices.values()) / fleet.replicas,
        kv_share=in_flight * (tokens + batching.lookahead) / room if room else math.nan, seeds=seeds,
    )  # fmt: skip


def _ranked(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells with their standing among those with as many requests in flight: by cost for a token."""
    best: dict[int, Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.per_million):
        best.setdefault(cell.in_flight, cell)
    return tuple(msgspec.structs.replace(cell, standing=_standing(cell, best[cell.in_flight])) for cell in cells)


def _standing(cell: Cell, best: Cell) -> str:
    if cell is best:
        return "best"
    dearer = cell.per_million / best.per_million - 1
    costs, of_best = ([one.per_million * one.tokens_per_s / seed for seed in one.seeds] for one in (cell, best))
    return "level" if dearer < INDIFFERENT or gap_between(costs, of_best).low <= 0 else f"+{dearer:.0%}"


def _lines(candidates: Sequence[Candidate], cells: Sequence[Cell], flights: Sequence[int]) -> Iterator[str]:
    """Say the best method by load, and from which load on speculation should be turned off."""
    by_load = {C: [cell for cell in cells if cell.in_flight == C] for C in flights}
    best = [next(cell for cell in by_load[C] if cell.standing == "best") for C in flights]
    runs = [list(run) for _, run in groupby(best, key=lambda cell: (cell.method, cell.depth))]  # of neighbouring loads
    spans = [
        f"{_span(run)} in flight: {_named(run[0])}{_level([by_load[cell.in_flight] for cell in run])}" for run in runs
    ]
    yield "best: " + "; ".join(spans)
    if len(candidates) > 1:
        gains = {
            C: max(cell.tokens_per_s for cell in own if cell.depth) / own[0].tokens_per_s for C, own in by_load.items()
        }
        yield "speed-up: " + ", ".join(f"x{gain:.2f} at {C}" for C, gain in gains.items())
        off = [cell.in_flight for cell in best if not cell.depth]
        depths = ", ".join(f"{cell.depth} at {cell.in_flight}" for cell in best if cell.depth)
        end = "it pays at each of these loads"
        if off:
            lasts = off == [C for C in flights if off[0] <= C]
            end = f"off from {off[0]} in flight on" if lasts else f"off at {', '.join(map(str, off))}"
        yield f"speculate: {f'depth {depths}' if depths else 'never'}; {end}"
    by_name = {one.name: one for one in candidates}
    for run in runs:
        yield f"serve: {serve_command(by_name[run[0].method], run[0].depth, run[-1].in_flight)}"
    full = [cell for cell in cells if cell.kv_share > 1]
    if full:
        first = min(full, key=lambda cell: cell.in_flight)
        need = f"{first.in_flight} in flight of {first.method} need {first.kv_share:.0%} of it; requests wait"
        yield f"KV cache: {need}"


def _span(run: Sequence[Cell]) -> str:
    first, last = run[0].in_flight, run[-1].in_flight
    return str(first) if first == last else f"{first} to {last}"


def _named(cell: Cell) -> str:
    return f"{cell.method}, depth {cell.depth}" if cell.depth else cell.method


def _level(loads: Sequence[Sequence[Cell]]) -> str:
    """Name the methods that are level with the best one at all of these loads."""
    level = [one[0].method for one in zip(*loads, strict=True) if all(cell.standing == "level" for cell in one)]
    return f" (level with {', '.join(level)})" if level else ""
