"""A chain or a block, on a device of its own or on the target's: tokens/s over the number of targets, and N_full.

Step times are estimated. Acceptance is assumed: equal for all, or by position as published of chains and of blocks.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
from msgspec.structs import replace

import specfleet
from bench.harness import Options, Report, Row
from specfleet.figures import sweep
from specfleet.figures.style import save
from specfleet.fleet.acceptance.models import PerPosition
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.policies.group import AllWaiting, One
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.scenario import Drafters, DraftKind, Place, Scenario, Verifiers, Workload
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate

TARGET, LINK = "qwen3-8b@l40s", LinkTime(50e-6, 25e9 / 8)
CHAIN = (0.762, 0.616, 0.513, 0.424, 0.364, 0.309, 0.272, 0.237)  # MTP, by position (vLLM #48892)
FALLING = (0.712, 0.517, 0.390, 0.305, 0.244, 0.200, 0.169, 0.144)  # DSpark on GLM-5.2 (vLLM #52992)
QUALITIES = {"equal acceptance": CHAIN, "equal quality": tuple(CHAIN[0] / FALLING[0] * share for share in FALLING)}
"""Acceptance of blocks: that of chains, or from the same first position on as quick a fall."""
COUNTS = {1: (1, 2, 4, 6, 8, 10, 12, 16), 16: (1, 2, 3, 4, 6, 8)}  # of targets, by requests at each
DEPTHS = (1, 2, 4, 6, 8)
CELLS = (("block, own device", 4, 8), ("block, own device", 8, 8), ("chain, own device", 8, 1))  # targets, depth
STEPS = ("draft", "verify", "decode", "draft_prefill", "verify_prefill")
OPTIONS: Options = {
    "--tokens": {"type": int, "default": 192, "help": "tokens of an answer"},
    "--slower": {"type": int, "default": 0, "help": "run three cells instead, replayed so many times slower"},
}


class Arm(NamedTuple):
    """A way to draft: the drafter at its place, or none, its kind, and whether it has a device of its own."""

    place: str | None
    kind: DraftKind = "model"
    is_apart: bool = False


ARMS = {
    "chain, own device": Arm("qwen3-0.6b@l40s", is_apart=True),
    "block, own device": Arm("pard-qwen3-0.6b@l40s", "block", is_apart=True),
    "chain, target's device": Arm("eagle3-qwen3-8b@l40s", "eagle"),
    "block, target's device": Arm("dflash-qwen3-8b@l40s", "block"),
    sweep.PLAIN: Arm(None),
}


def study(options: argparse.Namespace) -> Report:
    """Simulate each way over the number of targets, each at its best depth, and draw it; or run three cells."""
    if options.slower:
        return Report({"replayed": [_replayed(*cell, options.tokens, options.slower) for cell in CELLS]})
    rows = [row for quality in QUALITIES for requests in COUNTS for row in _rows(quality, requests, options.tokens)]
    points = pd.DataFrame(rows).rename(columns={"targets": "x", "drafter": "line", "tokens/s": "value"})
    points["panel"] = [f"{row['acceptance']}, {row['at each']} at each" for row in rows]
    points["world"], points["low"], points["high"] = "sim", float("nan"), float("nan")
    labels = {"x": "targets", "value": "tokens/s of the fleet", "line": "drafter", "panel": ""}
    caption = f"{TARGET}; a drafter elsewhere: one L40S, 25 Gbit/s; simulated, step times estimated, acceptance assumed"
    save(sweep.draw(points, labels), options.out / "block-drafters.png", caption)
    return Report({"tokens/s over targets": rows})


def _rows(quality: str, requests: int, tokens: int) -> Iterator[Row]:
    """Yield the best fleets; targets that draft for themselves share nothing, so that one stands for all."""
    for name, arm in ARMS.items():
        known: dict[int, tuple[float, int, int | None]] = {}
        for targets in COUNTS[requests]:
            served = targets if arm.is_apart else 1
            if served not in known:
                known[served] = max(
                    _simulated(arm, QUALITIES[quality], served, requests, depth, tokens)
                    for depth in (DEPTHS if arm.place else (0,))
                )
            per_s, depth, N_full = known[served]
            yield {
                "acceptance": quality, "at each": requests, "drafter": name, "targets": targets,
                "tokens/s": per_s * targets / served, "depth": depth, "N_full": N_full,
            }  # fmt: skip


def _replayed(name: str, targets: int, depth: int, tokens: int, slower: int) -> Row:
    """Run a star with replayed stations, all of its times so many times longer, and predict it.

    With the run's own seed, for replayed stations draw what the simulation draws: seeds are 2.5 % apart.
    """
    made = fleet(ARMS[name], QUALITIES["equal quality"], targets, 1, depth, tokens)
    assert isinstance(made.profile, HardwareProfile)
    steps = {step: getattr(made.profile, step).slowed(slower) for step in STEPS}
    slow = replace(made.profile, request_s=slower * made.profile.request_s, **steps)
    link = LinkTime(slower * LINK.latency_s, (LINK.bandwidth_bytes_per_s or 0.0) / slower)
    drafters, verifiers = replace(made.drafters, kind="replayed"), replace(made.verifiers, kind="replayed")
    ran = specfleet.run(replace(made, profile=slow, link=link, drafters=drafters, verifiers=verifiers))
    (row,) = [row for row in specfleet.three_errors(ran, seeds=1).rows if row.quantity == "throughput"]
    assert row.parameters is not None
    assert row.mechanism is not None
    errors = {"error, %": 100 * row.parameters.value, "mechanism, %": 100 * row.mechanism.value}
    return {"drafter": name, "targets": targets, "depth": depth, "tokens/s": ran.metrics["throughput"].value} | errors


def _simulated(
    arm: Arm, block: tuple[float, ...], targets: int, requests: int, depth: int, tokens: int
) -> tuple[float, int, int | None]:
    """Return tokens/s, the depth, and N_full of a star."""
    made = fleet(arm, block, targets, requests, depth, tokens)
    N_full = predict(made).N_full if arm.is_apart and requests == 1 else None
    return measure(simulate(made))["throughput"].value, depth, N_full


def fleet(arm: Arm, block: tuple[float, ...], targets: int, requests: int, depth: int, tokens: int) -> Scenario:
    """Return a fleet of so many targets, with so many requests at each in a closed loop."""
    drafters, batched = Drafters(count=0), arm.is_apart and requests > 1
    if arm.place:
        place: Place = "own" if arm.is_apart else "target"
        drafters = Drafters(kind=arm.kind, place=place, depth=depth, group=AllWaiting() if batched else One())
    return Scenario(
        "blocks", profile=estimate(TARGET, arm.place), drafters=drafters, link=LINK if arm.is_apart else None,
        acceptance=PerPosition(survival=block if arm.kind == "block" else CHAIN),
        verifiers=Verifiers(count=targets, max_num_seqs=requests, max_num_batched_tokens=8192),
        workload=Workload(
            requests=max(3 * requests * targets, 12), streams=requests * targets, prompt_tokens=500, new_tokens=tokens
        ),
    )  # fmt: skip
