"""Calibrate: microbenchmarks of a model pair on this host, fitted into a hardware profile."""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.acceptance import accepted_lengths, describe_acceptance
from calibrate.contention import measure_contention
from calibrate.fits import Point, Residual, fit_link, fit_step, spread_of
from calibrate.inservice import Fleets, Rounds, after_gap, half_loaded, over_gaps, saturated, spread_numbers
from calibrate.links import measure_round_trips
from calibrate.load import fit_recent_load, spread_in_service
from calibrate.reference import at_pace, control_beside_steps_s
from calibrate.steps import (
    Series,
    Stopwatch,
    draft_prefill_series,
    draft_series,
    hidden_size,
    measure,
    verify_prefill_series,
    verify_series,
)
from calibrate.turns import measure_turns
from engine.draft import Drafter
from engine.fleet import load_target, new_drafter, new_target
from engine.models import check_shared_tokenizer
from engine.node import THREADS
from engine.prompts import prompts_of
from engine.stories import stories_of
from engine.telemetry import host_facts
from engine.verify import Target
from specfleet.acceptance import Recorded
from specfleet.errors import InputError
from specfleet.profile import HardwareProfile, LinkTime, StepTime
from specfleet.scenario import Drafters, Scenario, Verifiers, Workload, mean_tokens

Report = Callable[[str], None]
Floats = NDArray[np.float64]

SHORTEST_GAP_S = 0.001
WARM_UP_GAP_S = 0.03  # the gap of StarSD's figure 6c
GAP_BINS = 8


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    repeats: int = 6
    prompts: int = 72  # as many as a demo cell decodes, each with its pair there
    longest_gap_s: float = 0.1
    gap_rounds: int = 300
    warm_tokens: tuple[int, ...] = (0, 1, 2, 4)
    warm_rounds: int = 40
    loads: tuple[int | None, ...] = (None, 1, 3)  # targets; None saturates the drafter
    saturated_rounds: int = 300
    loaded_rounds: int = 150
    payloads_bytes: tuple[int, ...] = (64, 1024, 16 * 1024, 128 * 1024)
    pings: int = 60
    sharing_targets: int = 2  # fleets of 1 .. so many targets share one device
    sharing_requests: int = 12  # of each target there


QUICK = Effort(
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=6, prompts=48, longest_gap_s=0.05, gap_rounds=250,
    warm_tokens=(0, 2), warm_rounds=30, loads=(None, 2), saturated_rounds=200, loaded_rounds=150,
    payloads_bytes=(64, 16 * 1024), pings=20, sharing_targets=1, sharing_requests=8,
)  # fmt: skip


def calibrate(
    scenario: Scenario,
    folder: Path,
    effort: Effort = Effort(),
    report: Report = lambda _stage: None,
) -> HardwareProfile:
    """Measure the scenario's model pair on this host, on the scenario's prompts, and fit a profile.

    `report` is told the name of each stage as it begins; STAGES lists them. `folder` keeps decoded continuations.
    """
    scenario = pair_of(scenario, effort.prompts)
    kind, shape = scenario.drafters.kind, scenario.drafters.shape
    if kind == "model":
        check_shared_tokenizer(scenario.drafters.model, scenario.verifiers.model)
    torch.set_num_threads(THREADS)
    prompts = prompts_of(scenario)
    target = new_target(scenario, load_target(scenario))
    drafter = new_drafter(scenario, target.model)
    assert isinstance(drafter, Drafter)
    device = target.model.device
    control_s = control_beside_steps_s(drafter, target, prompts[0]) if device.type == "cpu" else 0.0
    times, tables = bench_steps(drafter, target, prompts[0], scenario.drafters, effort, control_s, report)
    report("acceptance")
    depth, new_tokens = scenario.drafters.depth, int(mean_tokens(scenario.workload.new_tokens))
    accepted = [accepted_lengths(drafter, story, new_tokens, depth) for story in stories_of(scenario, folder)]
    report("links")
    round_trips_s = measure_round_trips(scenario, effort.payloads_bytes, effort.pings)
    report("drafters in service")
    fleets = Fleets(scenario, times, control_s, folder)
    # In three passes, minutes apart: a shared host has fast and slow spells that outlast any one of them.
    loaded = in_service(fleets, effort)
    report("idle gaps")
    idling = over_gaps(fleets, SHORTEST_GAP_S, effort.longest_gap_s, effort.gap_rounds)
    report("drafters in service, second pass")
    loaded += in_service(fleets, effort)
    report("warm-up tokens")
    warmed = [(tokens, after_gap(fleets, WARM_UP_GAP_S, effort.warm_rounds, tokens)) for tokens in effort.warm_tokens]
    report("stations that share a device")
    turns = [
        measure_turns(fleets, targets, effort.sharing_requests, "turns")
        for targets in range(1, effort.sharing_targets + 1)
    ]
    one_process = measure_turns(fleets, 1, effort.sharing_requests, "one-process")
    contention = measure_contention(fleets, turns, effort.sharing_requests)
    report("drafters in service, third pass")
    loaded += in_service(fleets, effort)

    facts, unread = host_facts()
    busy = [rounds for targets, rounds in loaded if targets is None]
    pausing = [idling, *(rounds for targets, rounds in loaded if targets is not None)]
    effect = fit_recent_load([*busy, *pausing])
    turnarounds_s = np.concatenate([rounds.turnaround_s for rounds in busy])
    wake_ups_s = np.concatenate([rounds.wake_up_s for rounds in pausing])
    under_way_s = np.concatenate([rounds.return_s for rounds in pausing])
    slowness = float(np.median(np.concatenate([rounds.slowness for rounds in [*busy, *pausing]])))
    profile = HardwareProfile(
        name=f"calibrated-{facts['machine']}",
        draft=msgspec.structs.replace(times["draft"], spread=spread_in_service(effect, [*busy, *pausing])),
        verify=times["verify"],
        decode=times["decode"],
        draft_prefill=times["draft_prefill"],
        verify_prefill=times["verify_prefill"],
        turnaround_s=float(turnarounds_s.mean()),
        wake_up_s=float(wake_ups_s.mean()),
        link=link_under_way(fit_link(effort.payloads_bytes, round_trips_s), under_way_s),
        recent_load=effect,
        turns=tuple(turns),
        one_process=one_process,
        contention=contention,
        acceptance=Recorded(depth, tuple(map(tuple, accepted))),
        vocabulary=target.model.vocabulary,
        hidden=hidden_size(target.model) if kind == "eagle" else 0,
        control_s=control_s,
        provenance=facts
        | {
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "drafter": f"{kind} {scenario.drafters.model}" + ("" if shape.kind == "chain" else f", {shape}"),
            "target": scenario.verifiers.model,
            "precision": scenario.precision,
            "prompts": f"{scenario.workload.prompts}, the first {effort.prompts}",
            "unread": "; ".join(unread) or "nothing",
        },
        measured=tables
        | {
            "round_trips": [
                {"payload_bytes": size} | spread_numbers(times)
                for size, times in zip(effort.payloads_bytes, round_trips_s, strict=True)
            ],
            "idle": [
                {"gap_s": float(gap_s.mean())} | spread_numbers(draft_s) for gap_s, draft_s in by_gap(busy, idling)
            ],
            "warm_up": [{"warm_tokens": tokens} | spread_numbers(rounds.paced_s) for tokens, rounds in warmed],
            "turnaround": spread_numbers(turnarounds_s),
            "wake_up": spread_numbers(wake_ups_s),
            "acceptance": describe_acceptance(accepted, depth),
        },
    )
    return at_pace(profile, slowness)


def pair_of(scenario: Scenario, prompts: int) -> Scenario:
    """What is measured of a scenario: its models, its drafts, and prompts of its typical length, decoded greedily."""
    drafters, workload = scenario.drafters, scenario.workload
    if drafters.kind == "lookup":
        raise InputError(
            f"scenario {scenario.name!r}: drafters.kind = 'lookup' drafts in no time, as many tokens as it finds; "
            "calibrate it as a [batch]"
        )
    return Scenario(
        name=f"calibration of {scenario.name}",
        seed=scenario.seed,
        precision=scenario.precision,
        drafters=Drafters(kind=drafters.kind, model=drafters.model, depth=drafters.depth, shape=drafters.shape),
        verifiers=Verifiers(model=scenario.verifiers.model),
        workload=Workload(
            prompts=workload.prompts,
            prompt_tokens=int(mean_tokens(workload.prompt_tokens)),
            new_tokens=int(mean_tokens(workload.new_tokens)),
            requests=prompts,
        ),
    )


def bench_steps(
    drafter: Drafter,
    target: Target,
    prompt: list[int],
    drafters: Drafters,
    effort: Effort,
    control_s: float,
    report: Report,
) -> tuple[dict[str, StepTime], dict[str, Any]]:
    """Measure and fit all kinds of steps; return the fits and the tables behind them, by the names of a profile."""
    shape = drafters.shape
    depths = [depth for depth in effort.depths if shape.kind == "chain" or depth <= drafters.depth]
    fed = sorted({shape.nodes(depth) + 1 for depth in depths})
    how = prompt, effort.repeats, Stopwatch(target.model.device, control_s)
    verifications = verify_series(target, *how, shape)
    grids: dict[str, tuple[str, Series, Sequence[int], Sequence[int]]] = {
        "draft": ("draft steps", draft_series(drafter, *how), depths, effort.contexts),
        "verify": ("verification and decoding steps", verifications, fed, effort.contexts),
        "decode": ("", verifications, [1], effort.contexts),
        "draft_prefill": ("prefills", draft_prefill_series(drafter, *how), effort.contexts, (0,)),
        "verify_prefill": ("", verify_prefill_series(target, *how), effort.contexts, (0,)),
    }
    times, tables = {}, {}
    for name, (stage, series, tokens, contexts) in grids.items():
        if stage:
            report(stage)
        points = measure(series, tokens, contexts)
        times[name], residuals = fit_step(points)
        tables[name] = _table(points, residuals)
    return times, tables


STAGES = (
    "draft steps", "verification and decoding steps", "prefills", "acceptance", "links", "drafters in service",
    "idle gaps", "drafters in service, second pass", "warm-up tokens", "stations that share a device",
    "drafters in service, third pass",
)  # fmt: skip


def in_service(fleets: Fleets, effort: Effort) -> list[tuple[int | None, Rounds]]:
    """Run one fleet for each load; return the loads with their rounds."""
    return [
        (targets, saturated(fleets, effort.saturated_rounds))
        if targets is None
        else (targets, half_loaded(fleets, targets, effort.loaded_rounds))
        for targets in effort.loads
    ]


def by_gap(busy: Sequence[Rounds], idling: Rounds) -> list[tuple[Floats, Floats]]:
    """Group drafts by the gap before them, at the reference pace: the saturated runs, then bins of the idling one."""
    order = np.array_split(np.argsort(idling.gap_s), GAP_BINS)
    saturated_gaps_s = np.concatenate([rounds.gap_s for rounds in busy])
    saturated_s = np.concatenate([rounds.paced_s for rounds in busy])
    return [(saturated_gaps_s, saturated_s), *((idling.gap_s[part], idling.paced_s[part]) for part in order)]


def link_under_way(pinged: LinkTime, under_way_s: Floats) -> LinkTime:
    """The link as rounds see it: half of what a return takes beyond the verification; bandwidth as the pings saw it."""
    mean_s = float(under_way_s.mean())
    return LinkTime(mean_s / 2, pinged.bandwidth_bytes_per_s, spread_of(under_way_s / mean_s))


def _table(points: Sequence[Point], residuals: Sequence[Residual]) -> list[dict[str, Any]]:
    """Raw quantiles and residual of every grid point."""
    return [
        {
            "tokens": point.tokens,
            "context": point.context,
            "quantiles_s": np.quantile(point.times_s, (0.1, 0.5, 0.9)).tolist(),
            "fitted_s": residual.fitted_s,
            "held_out": residual.held_out,
        }
        for point, residual in zip(points, residuals, strict=True)
    ]
