"""Methods of speculation side by side, by requests in flight: what each gives, and from which load on it loses.

Equations choose the depth of each cell and how many targets share a drafter; simulations give the numbers. All cells
have the same requests. Answers vary by a tenth around their length, since equally long ones would stay in step.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from experiments.jobs import side_by_side
from experiments.plan.candidates import Asked, Candidate, candidates_of
from experiments.plan.commands import serve_command
from experiments.plan.prices import devices_of
from experiments.plan.serving import drafter_share, request_s
from fleet.errors import InputError
from fleet.records.metrics.intervals import student_t_interval
from fleet.records.metrics.measure import measure
from fleet.scenario.cost import per_million_tokens
from fleet.scenario.lengths import Between
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Late, Scenario, Workload
from fleet.scenario.workload import mean_lengths
from sim.run import observe

SEEDS = 3
FEWEST, EACH = 32, 4  # requests of a simulation: at least, and for each one in flight
MOST_TARGETS = 4  # of one drafter
DRAFTER_LOAD = 0.8  # share of time up to which a drafter gets more targets
LEVEL = 0.01  # a smaller difference is none
LATE: tuple[Late, ...] = ("skip", "decode")  # of late drafts, to try


class Setting(msgspec.Struct, frozen=True):
    """What varies of a candidate: requests in flight at each target, draft tokens, targets of a drafter, and `late`."""

    in_flight: int
    depth: int
    targets: int
    late: Late = "skip"


Choice = tuple[Candidate, Setting]


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
    load = Scenario(workload=Workload(prompt_tokens=prompt_tokens, new_tokens=about(new_tokens)))
    asked = Asked(target, tuple(drafts), tuple(acceptance), load, link, tuple(cost))
    candidates, unit = candidates_of(asked)
    flights = tuple(sorted(set(in_flight)))
    options = [[(one, setting) for setting in _settings(one, C, depth)] for one in candidates for C in flights]
    chosen = _chosen(options, jobs, done)
    trials = [(*each, seed) for each in chosen for seed in range(SEEDS)]
    results = list(_simulations(trials, jobs, done))
    simulated = [_cell(*each, results[SEEDS * place : SEEDS * (place + 1)]) for place, each in enumerate(chosen)]
    ranked = tuple(_ranked(simulated))
    title = f"{target}: prompts of {prompt_tokens} tokens, answers of about {new_tokens}"
    return Methods(title, flights, ranked, unit, tuple(_lines(candidates, ranked, flights)))


def about(tokens: int) -> Between:
    """Return lengths that vary by a tenth."""
    return Between(low=max(1, round(0.9 * tokens)), high=round(1.1 * tokens))


def _simulations(
    trials: Sequence[tuple[Candidate, Setting, int]], jobs: int, done: Callable[[str], None]
) -> Iterator[dict[str, float]]:
    for trial, result in zip(trials, side_by_side(_simulated, trials, jobs), strict=True):
        done(f"{trial[0].name}, {trial[1].in_flight} in flight")
        yield result


def _chosen(options: Sequence[Sequence[Choice]], jobs: int, done: Callable[[str], None]) -> list[Choice]:
    """Return one setting for each cell: of several, the fastest in a first simulation."""
    several = [choice for own in options if len(own) > 1 for choice in own]
    results = list(_simulations([(*choice, 0) for choice in several], jobs, done))
    fastest = []
    for own in options:
        place = next((place for place, choice in enumerate(several) if choice is own[0]), 0)
        speeds = [result["throughput"] for result in results[place : place + len(own)]] if len(own) > 1 else [0.0]
        fastest.append(own[int(np.argmax(speeds))])
    return fastest


def _settings(one: Candidate, in_flight: int, asked: int) -> list[Setting]:
    """Return the settings of a cell to simulate: depth and targets of a drafter by equations."""
    if one.method == "none":
        return [Setting(in_flight, 0, 1)]
    depths = [min(asked, one.depths[-1])] if asked else list(one.depths)
    fleet = resolve(_scenario(one, Setting(in_flight, depths[0], 1)))
    depth = min(depths, key=lambda depth: request_s(fleet, in_flight, depth))
    if one.method != "apart":
        return [Setting(in_flight, depth, 1)]
    share = drafter_share(fleet, in_flight, depth)
    targets = int(DRAFTER_LOAD / share) if share else MOST_TARGETS
    return [Setting(in_flight, depth, min(max(targets, 1), MOST_TARGETS), late) for late in LATE]


def _scenario(one: Candidate, setting: Setting) -> Scenario:
    """Return the fleet of a cell."""
    replace, base = msgspec.structs.replace, one.base
    streams = setting.in_flight * setting.targets
    workload = replace(base.workload, streams=streams, requests=max(EACH * streams, FEWEST))
    drafters = replace(base.drafters, depth=setting.depth) if setting.depth else base.drafters
    verifiers = replace(base.verifiers, count=setting.targets, late=setting.late)
    return replace(base, workload=workload, drafters=drafters, verifiers=verifiers)


def _simulated(one: Candidate, setting: Setting, seed: int) -> dict[str, float]:
    metrics = measure(observe(msgspec.structs.replace(_scenario(one, setting), seed=seed)))
    return {name: metrics[name].value for name in ("throughput", "tpot_s", "ttft_s")}


def _cell(one: Candidate, setting: Setting, trials: Sequence[dict[str, float]]) -> Cell:
    seeds = tuple(trial["throughput"] / setting.targets for trial in trials)
    tokens_per_s = float(np.mean(seeds))
    batching = resolve(_scenario(one, setting)).verifiers.batching
    prompt, answer = mean_lengths(one.base.workload)
    room = batching.kv_blocks * batching.block_size
    return Cell(
        method=one.name, in_flight=setting.in_flight, depth=setting.depth, targets=setting.targets, late=setting.late,
        tokens_per_s=tokens_per_s,
        tpot_s=float(np.mean([trial["tpot_s"] for trial in trials])),
        ttft_s=float(np.mean([trial["ttft_s"] for trial in trials])),
        per_million=per_million_tokens(one.target_per_hour + one.drafter_per_hour / setting.targets, tokens_per_s),
        devices=devices_of(one.target)[1]
        + (devices_of(one.name)[1] / setting.targets if one.method == "apart" else 0.0),
        kv_share=setting.in_flight * (prompt + answer + batching.lookahead) / room if room else math.nan,
        seeds=seeds,
    )  # fmt: skip


def _ranked(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells with their standing among those with as many requests in flight: by cost for a token."""
    every = list(cells)
    best = {}
    for cell in every:
        before = best.get(cell.in_flight)
        if before is None or cell.per_million < before.per_million:
            best[cell.in_flight] = cell
    return [msgspec.structs.replace(cell, standing=_standing(cell, best[cell.in_flight])) for cell in every]


def _standing(cell: Cell, best: Cell) -> str:
    if cell is best:
        return "best"
    dearer = cell.per_million / best.per_million - 1
    prices = cell.per_million * cell.tokens_per_s / (best.per_million * best.tokens_per_s)
    ratios = [prices * ours / theirs - 1 for ours, theirs in zip(best.seeds, cell.seeds, strict=True)]
    low, _ = student_t_interval(ratios)
    return "level" if dearer < LEVEL or low <= 0 else f"+{dearer:.0%}"


def _lines(candidates: Sequence[Candidate], cells: Sequence[Cell], flights: Sequence[int]) -> list[str]:
    """Say the best method by load, and from which load on speculation should be turned off."""
    by_load = {C: [cell for cell in cells if cell.in_flight == C] for C in flights}
    best = {C: next(cell for cell in own if cell.standing == "best") for C, own in by_load.items()}
    runs: list[list[Cell]] = []  # of loads with the same best method and depth
    for C in flights:
        same = runs and (runs[-1][0].method, runs[-1][0].depth) == (best[C].method, best[C].depth)
        runs[-1].append(best[C]) if same else runs.append([best[C]])
    spans = [
        f"{_span(run)} in flight: {_named(run[0])}{_level([by_load[cell.in_flight] for cell in run])}" for run in runs
    ]
    lines = ["best: " + "; ".join(spans)]
    plain = {cell.in_flight: cell for cell in cells if cell.method == candidates[0].name}
    if len(candidates) > 1:
        gains = {
            C: max(cell.tokens_per_s for cell in by_load[C] if cell.depth) / plain[C].tokens_per_s for C in flights
        }
        lines.append("speed-up: " + ", ".join(f"x{gain:.2f} at {C}" for C, gain in gains.items()))
        off = [C for C in flights if best[C].depth == 0]
        depths = ", ".join(f"{best[C].depth} at {C}" for C in flights if best[C].depth)
        end = "it pays at each of these loads"
        if off:
            lasts = off == [C for C in flights if off[0] <= C]
            end = f"off from {off[0]} in flight on" if lasts else f"off at {', '.join(map(str, off))}"
        lines.append(f"speculate: {f'depth {depths}' if depths else 'never'}; {end}")
    by_name = {one.name: one for one in candidates}
    lines += [f"serve: {serve_command(by_name[run[0].method], run[0].depth, run[-1].in_flight)}" for run in runs]
    full = [cell for cell in cells if cell.kv_share > 1]
    if full:
        first = min(full, key=lambda cell: cell.in_flight)
        need = f"{first.in_flight} in flight of {first.method} need {first.kv_share:.0%} of it; requests wait"
        lines.append(f"KV cache: {need}")
    return lines


def _span(run: Sequence[Cell]) -> str:
    first, last = run[0].in_flight, run[-1].in_flight
    return str(first) if first == last else f"{first} to {last}"


def _named(cell: Cell) -> str:
    return f"{cell.method}, depth {cell.depth}" if cell.depth else cell.method


def _level(loads: Sequence[Sequence[Cell]]) -> str:
    """Name the methods that are level with the best one at all of these loads."""
    level = [one[0].method for one in zip(*loads, strict=True) if all(cell.standing == "level" for cell in one)]
    return f" (level with {', '.join(level)})" if level else ""
