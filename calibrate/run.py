"""Calibrate: microbenchmarks of a model pair on this host, fitted into a hardware profile."""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from calibrate.contention import measure_contention
from calibrate.fits import Point, Residual, fit_link, fit_step, spread_of
from calibrate.inservice import Rounds, after_gap, saturated, spread_numbers
from calibrate.links import measure_round_trips
from calibrate.steps import (
    draft_prefill_series,
    draft_series,
    measure,
    verify_prefill_series,
    verify_series,
)
from engine.decode import decode_speculatively
from engine.draft import Drafter
from engine.models import check_shared_tokenizer, load_model
from engine.node import THREADS
from engine.prompts import prompts_of
from engine.telemetry import host_facts
from engine.verify import Target
from specfleet.acceptance import Recorded
from specfleet.acceptance_fit import fit_beta_geometric, fit_geometric, likelihood_ratio_test, mean_interval
from specfleet.profile import HardwareProfile, IdleEffect, LinkTime, StepTime
from specfleet.scenario import Scenario

Report = Callable[[str], None]


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    repeats: int = 12
    prompts: int = 64
    gaps_s: tuple[float, ...] = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
    warm_tokens: tuple[int, ...] = (1, 2, 4)
    rounds: int = 60
    saturated_rounds: int = 400
    payloads_bytes: tuple[int, ...] = (64, 1024, 16 * 1024, 128 * 1024)
    pings: int = 60
    stations: int = 3
    contention_s: float = 1.5


QUICK = Effort(
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=6, prompts=16, gaps_s=(0.005, 0.02), warm_tokens=(2,),
    rounds=30, saturated_rounds=150, payloads_bytes=(64, 16 * 1024), pings=20, stations=2, contention_s=0.5,
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
    accepted = _accepted_lengths(drafter, target, prompts, scenario)
    report("links")
    round_trips_s = measure_round_trips(scenario, effort.payloads_bytes, effort.pings)
    report("a saturated drafter")
    busy = saturated(scenario, draft, folder, effort.saturated_rounds)
    report("idle gaps")
    gaps = [(gap_s, after_gap(scenario, draft, folder, gap_s, effort.rounds)) for gap_s in effort.gaps_s]
    report("warm-up tokens")
    warm_gap_s = effort.gaps_s[len(effort.gaps_s) // 2]
    warmed = [(0, dict(gaps)[warm_gap_s])] + [
        (tokens, after_gap(scenario, draft, folder, warm_gap_s, effort.rounds, tokens)) for tokens in effort.warm_tokens
    ]
    report("contention")
    contention = measure_contention(scenario, prompts[0], effort.stations, effort.contention_s)

    facts, unread = host_facts()
    idle = idle_effect(busy, gaps, warmed)
    link = link_under_way(fit_link(effort.payloads_bytes, round_trips_s), gaps, scenario.drafters.depth)
    return HardwareProfile(
        name=f"calibrated-{facts['machine']}",
        draft=draft,
        verify=verify,
        decode=decode,
        draft_prefill=draft_prefill,
        verify_prefill=verify_prefill,
        turnaround_s=float(np.mean(busy.turnaround_s)),
        link=link,
        idle=idle,
        contention=contention,
        acceptance=Recorded(scenario.drafters.depth, tuple(map(tuple, accepted))),
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
            "idle": [{"gap_s": float(np.mean(r.gap_s))} | spread_numbers(r.draft_s) for r in [busy, *(r for _, r in gaps)]],
            "warm_up": [{"warm_tokens": tokens} | spread_numbers(r.draft_s) for tokens, r in warmed],
            "turnaround": spread_numbers(busy.turnaround_s),
            "acceptance": acceptance_report(accepted, scenario.drafters.depth),
        },
    )


STAGES = (
    "draft steps", "verification and decoding steps", "prefills", "acceptance", "links", "a saturated drafter",
    "idle gaps", "warm-up tokens", "contention",
)  # fmt: skip


def idle_effect(busy: Rounds, gaps: Sequence[tuple[float, Rounds]], warmed: Sequence[tuple[int, Rounds]]) -> IdleEffect:
    """Slowdown of drafts in service against the fit, by the idle gap before them (StarSD, figure 6b and 6c)."""
    series = sorted(
        (float(np.mean(rounds.gap_s)), float(rounds.draft_s.sum() / rounds.fitted_s.sum()))
        for rounds in [busy, *(rounds for _, rounds in gaps)]
    )
    cold = warmed[0][1]
    excess_s = cold.draft_s.mean() - busy.draft_s.mean()
    recoveries = [1.0]
    for tokens, rounds in warmed[1:]:
        left = (rounds.draft_s.mean() - busy.draft_s.mean()) / excess_s if excess_s > 0 else 1.0
        recoveries += [float(np.clip(left, 0.0, 1.0))] * (tokens - len(recoveries) + 1)
    return IdleEffect(tuple(gap for gap, _ in series), tuple(slowdown for _, slowdown in series), tuple(recoveries))


def link_under_way(pinged: LinkTime, gaps: Sequence[tuple[float, Rounds]], depth: int) -> LinkTime:  # noqa: ARG001
    """The link as rounds see it: half of what a return takes beyond the verification; bandwidth as the pings saw it."""
    returns_s = np.concatenate([rounds.return_s for _, rounds in gaps])
    return LinkTime(float(returns_s.mean() / 2), pinged.bandwidth_bytes_per_s, spread_of((returns_s / returns_s.mean()).tolist()))


def acceptance_report(sessions: Sequence[Sequence[int]], depth: int) -> dict[str, Any]:
    """Fits of the accepted lengths: one beta, beta-geometric, their likelihood ratio, and the mean with its interval."""
    lengths = np.concatenate([np.array(session) for session in sessions])
    depths = np.full(len(lengths), depth)
    mean = mean_interval(sessions)
    test = likelihood_ratio_test(lengths, depths)
    return {
        "rounds": len(lengths),
        "mean": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "geometric": msgspec.to_builtins(fit_geometric(lengths, depths).model),
        "beta_geometric": msgspec.to_builtins(fit_beta_geometric(lengths, depths).model),
        "likelihood_ratio_p_value": test.p_value,
    }


def _fitted(
    series: Callable[[int, int], list[float]], tokens: Sequence[int], effort: Effort | None
) -> tuple[StepTime, list[Residual], list[Point]]:
    points = measure(series, tokens, effort.contexts if effort else (0,))
    fit, residuals = fit_step(points)
    return fit, residuals, points


def _accepted_lengths(
    drafter: Drafter, target: Target, prompts: Sequence[list[int]], scenario: Scenario
) -> list[list[int]]:
    new_tokens, depth = scenario.workload.new_tokens, scenario.drafters.depth
    return [decode_speculatively(target, drafter, prompt, new_tokens, depth)[1] for prompt in prompts]


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
