"""Calibrate: microbenchmarks of a model pair on this host, fitted into a hardware profile."""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from calibrate.acceptance import accepted_lengths, describe_acceptance
from calibrate.contention import measure_contention
from calibrate.fits import Point, Residual, fit_link, fit_step, spread_of
from calibrate.inservice import Rounds, after_gap, over_gaps, saturated, spread_numbers
from calibrate.links import measure_round_trips
from calibrate.steps import (
    draft_prefill_series,
    draft_series,
    measure,
    verify_prefill_series,
    verify_series,
)
from engine.draft import Drafter
from engine.models import check_shared_tokenizer, load_model
from engine.node import THREADS
from engine.prompts import prompts_of
from engine.stories import stories_of
from engine.telemetry import host_facts
from engine.verify import Target
from specfleet.acceptance import Recorded
from specfleet.profile import HardwareProfile, IdleEffect, LinkTime, Quantiles, StepTime
from specfleet.scenario import Scenario

Report = Callable[[str], None]
Floats = NDArray[np.float64]

SHORTEST_GAP_S = 0.001
WARM_UP_GAP_S = 0.03  # the gap of StarSD's figure 6c
GAP_BINS = 8


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    repeats: int = 12
    prompts: int = 72  # as many as a demo cell decodes, each with its pair there
    longest_gap_s: float = 0.1
    gap_rounds: int = 500
    warm_tokens: tuple[int, ...] = (0, 1, 2, 4)
    warm_rounds: int = 80
    saturated_rounds: int = 600
    payloads_bytes: tuple[int, ...] = (64, 1024, 16 * 1024, 128 * 1024)
    pings: int = 60
    stations: int = 3
    contention_s: float = 1.5


QUICK = Effort(
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=6, prompts=48, longest_gap_s=0.05, gap_rounds=250,
    warm_tokens=(0, 2), warm_rounds=30, saturated_rounds=300, payloads_bytes=(64, 16 * 1024), pings=20, stations=2, contention_s=0.5,
)  # fmt: skip


def calibrate(
    scenario: Scenario, folder: Path, effort: Effort = Effort(), report: Report = lambda stage: None  # noqa: B008
) -> HardwareProfile:
    """Measure the scenario's model pair on this host, on the scenario's prompts, and fit a profile.

    `report` is told the name of each stage as it begins; STAGES lists them. `folder` keeps decoded continuations.
    """
    check_shared_tokenizer(scenario.drafters.model, scenario.verifiers.model)
    torch.set_num_threads(THREADS)
    scenario = msgspec.structs.replace(
        scenario, workload=msgspec.structs.replace(scenario.workload, requests=effort.prompts, temperature=0.0)
    )
    prompts = prompts_of(scenario)
    drafter = Drafter(load_model(scenario.drafters.model, "drafter", scenario.precision))
    target = Target(load_model(scenario.verifiers.model, "target", scenario.precision))

    report("draft steps")
    draft, draft_residuals, draft_points = _fitted(draft_series(drafter, prompts[0], effort.repeats), effort.depths, effort)
    report("verification and decoding steps")
    fed = [1, *(depth + 1 for depth in effort.depths)]
    verify, verify_residuals, verify_points = _fitted(verify_series(target, prompts[0], effort.repeats), fed, effort)
    decode, _ = fit_step([point for point in verify_points if point.tokens == 1])
    report("prefills")
    draft_prefill, _, _ = _fitted(draft_prefill_series(drafter, prompts[0], effort.repeats), effort.contexts, None)
    verify_prefill, _, _ = _fitted(verify_prefill_series(target, prompts[0], effort.repeats), effort.contexts, None)
    report("acceptance")
    depth, new_tokens = scenario.drafters.depth, scenario.workload.new_tokens
    accepted = [accepted_lengths(drafter, story, new_tokens, depth) for story in stories_of(scenario, folder)]
    report("links")
    round_trips_s = measure_round_trips(scenario, effort.payloads_bytes, effort.pings)
    report("a saturated drafter")
    busy = saturated(scenario, draft, folder, effort.saturated_rounds)
    report("idle gaps")
    idling = over_gaps(scenario, draft, folder, SHORTEST_GAP_S, effort.longest_gap_s, effort.gap_rounds)
    report("warm-up tokens")
    warmed = [
        (tokens, after_gap(scenario, draft, folder, WARM_UP_GAP_S, effort.warm_rounds, tokens))
        for tokens in effort.warm_tokens
    ]
    report("contention")
    contention = measure_contention(scenario, prompts[0], effort.stations, effort.contention_s)

    facts, unread = host_facts()
    idle = idle_effect(busy, idling, warmed)
    link = link_under_way(fit_link(effort.payloads_bytes, round_trips_s), idling)
    return HardwareProfile(
        name=f"calibrated-{facts['machine']}",
        draft=msgspec.structs.replace(draft, spread=spread_in_service(idle, busy, idling)),
        verify=verify,
        decode=decode,
        draft_prefill=draft_prefill,
        verify_prefill=verify_prefill,
        turnaround_s=float(np.mean(busy.turnaround_s)),
        link=link,
        idle=idle,
        contention=contention,
        acceptance=Recorded(depth, tuple(map(tuple, accepted))),
        vocabulary=target.model.vocabulary,
        provenance=facts
        | {
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "drafter": scenario.drafters.model,
            "target": scenario.verifiers.model,
            "precision": scenario.precision,
            "prompts": f"{scenario.workload.prompts}, the first {effort.prompts}",
            "unread": "; ".join(unread) or "nothing",
        },
        measured={
            "draft": _table(draft_points, draft_residuals),
            "verify": _table(verify_points, verify_residuals),
            "round_trips": [
                {"payload_bytes": size} | spread_numbers(times)
                for size, times in zip(effort.payloads_bytes, round_trips_s, strict=True)
            ],
            "idle": [
                {"gap_s": float(gap_s.mean())} | spread_numbers(draft_s) for gap_s, draft_s, _ in by_gap(busy, idling)
            ],
            "warm_up": [{"warm_tokens": tokens} | spread_numbers(r.draft_s) for tokens, r in warmed],
            "turnaround": spread_numbers(busy.turnaround_s),
            "acceptance": describe_acceptance(accepted, depth),
        },
    )


STAGES = (
    "draft steps", "verification and decoding steps", "prefills", "acceptance", "links", "a saturated drafter",
    "idle gaps", "warm-up tokens", "contention",
)  # fmt: skip


def by_gap(busy: Rounds, idling: Rounds) -> list[tuple[Floats, Floats, Floats]]:
    """Group rounds by the gap before them: gaps, draft times and fitted times of the saturated run, then of each bin."""
    order = np.argsort(idling.gap_s)
    bins = [(idling.gap_s[part], idling.draft_s[part], idling.fitted_s[part]) for part in np.array_split(order, GAP_BINS)]
    return [(busy.gap_s, busy.draft_s, busy.fitted_s), *bins]


def idle_effect(busy: Rounds, idling: Rounds, warmed: Sequence[tuple[int, Rounds]]) -> IdleEffect:
    """Slowdown of drafts in service against the fit, by the idle gap before them (StarSD, figures 6b and 6c).

    Means a bin, then the closest rising curve (isotonic regression): longer idleness never makes a drafter faster.
    """
    groups = by_gap(busy, idling)
    slowdowns = [draft_s.sum() / fitted_s.sum() for _, draft_s, fitted_s in groups]
    rising = isotonic_regression(slowdowns, weights=[len(gap_s) for gap_s, _, _ in groups]).x
    gaps_s = np.maximum.accumulate([gap_s.mean() for gap_s, _, _ in groups])
    cold = warmed[0][1]
    excess_s = cold.draft_s.mean() - busy.draft_s.mean()
    recoveries: list[float] = []
    for tokens, rounds in warmed:
        left = (rounds.draft_s.mean() - busy.draft_s.mean()) / excess_s if excess_s > 0 else 1.0
        recoveries += [float(np.clip(left, 0.0, 1.0))] * (tokens + 1 - len(recoveries))
    return IdleEffect(tuple(gaps_s.tolist()), tuple(rising.tolist()), tuple(recoveries))


def spread_in_service(idle: IdleEffect, *runs: Rounds) -> Quantiles:
    """Quantiles of draft times in service over what fit and idle effect say: wider than back to back."""
    ratios = [
        draft_s / (fitted_s * idle.slowdown(gap_s))
        for rounds in runs
        for draft_s, fitted_s, gap_s in zip(rounds.draft_s, rounds.fitted_s, rounds.gap_s, strict=True)
    ]
    return spread_of(ratios)


def link_under_way(pinged: LinkTime, idling: Rounds) -> LinkTime:
    """The link as rounds see it: half of what a return takes beyond the verification; bandwidth as the pings saw it."""
    mean_s = float(idling.return_s.mean())
    return LinkTime(mean_s / 2, pinged.bandwidth_bytes_per_s, spread_of((idling.return_s / mean_s).tolist()))


def _fitted(
    series: Callable[[int, int], list[float]], tokens: Sequence[int], effort: Effort | None
) -> tuple[StepTime, list[Residual], list[Point]]:
    points = measure(series, tokens, effort.contexts if effort else (0,))
    fit, residuals = fit_step(points)
    return fit, residuals, points


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
