"""Calibrate: microbenchmarks of a model pair on this host, fitted into a hardware profile."""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from calibrate.acceptance import accepted_lengths
from calibrate.assemble import Measured, Points, merged, profile_from
from calibrate.fits import fit_step
from calibrate.inservice import Fleets, after_gap, half_loaded, over_gaps, saturated
from calibrate.links import measure_round_trips
from calibrate.reference import control_beside_steps_s
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
from calibrate.turns import share
from engine.decoding.draft import Drafter
from engine.decoding.models import check_shared_tokenizer
from engine.decoding.telemetry import host_facts
from engine.decoding.verify import Target
from engine.runtime.build import load_target, new_drafter, new_target
from engine.runtime.continuations import continuations_of
from engine.runtime.process import THREADS
from engine.runtime.prompts import prompts_of
from fleet.errors import InputError
from fleet.records.run import Run
from fleet.scenario.scenario import Drafters, Scenario, Verifiers, Workload, mean_tokens
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile

Report = Callable[[str], None]

SHORTEST_GAP_S = 0.001
WARM_UP_GAP_S = 0.03  # the gap of StarSD's figure 6c


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    repeats: int = 5
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
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=5, prompts=48, longest_gap_s=0.05, gap_rounds=250,
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

    `report` is called with the name of each stage as it begins; STAGES lists them. `folder`: where continuations
    are kept.
    """
    scenario = pair_of(scenario, effort.prompts)
    if scenario.drafters.kind == "model":
        check_shared_tokenizer(scenario.drafters.model, scenario.verifiers.model)
    torch.set_num_threads(THREADS)
    fleet = settle(scenario)
    target = new_target(fleet, load_target(fleet))
    drafter = new_drafter(fleet, target.model)
    assert isinstance(drafter, Drafter)
    prompt = prompts_of(fleet)[0]
    on_cpu = target.model.device.type == "cpu"
    control_s = control_beside_steps_s(drafter, target, prompt) if on_cpu else 0.0
    # What is fitted is measured in three passes, minutes apart: a shared host may be slow for longer than one of them.
    points: Points = {}
    loaded: list[tuple[int | None, Run]] = []

    def go_over(number: int) -> None:
        report(STEPS[number])
        for name, measured in bench_steps(drafter, target, prompt, scenario.drafters, effort, control_s).items():
            points[name] = merged(points.get(name, []), measured)
        report(IN_SERVICE[number])
        loaded.extend(in_service(fleets(), effort))

    def fleets() -> Fleets:
        return Fleets(scenario, {name: fit_step(of_name)[0] for name, of_name in points.items()}, control_s, folder)

    go_over(0)
    report("acceptance")
    depth, new_tokens = scenario.drafters.depth, int(mean_tokens(scenario.workload.new_tokens))
    accepted = [
        accepted_lengths(drafter, continuation, new_tokens, depth) for continuation in continuations_of(fleet, folder)
    ]
    report("links")
    round_trips_s = measure_round_trips(fleet, effort.payloads_bytes, effort.pings)
    report("idle gaps")
    idling = over_gaps(fleets(), SHORTEST_GAP_S, effort.longest_gap_s, effort.gap_rounds)
    go_over(1)
    report("warm-up tokens")
    warmed = [(tokens, after_gap(fleets(), WARM_UP_GAP_S, effort.warm_rounds, tokens)) for tokens in effort.warm_tokens]
    report("stations that share a device")
    count, requests = effort.sharing_targets, effort.sharing_requests
    turns = [share(fleets(), targets, requests, "turns") for targets in range(1, count + 1)]
    one_process = share(fleets(), 1, requests, "one-process")
    contended = [share(fleets(), targets, requests, "contended") for targets in range(1, count + 2)]
    go_over(2)
    measured = Measured(
        points, loaded, idling, warmed, turns, one_process, contended,
        list(zip(effort.payloads_bytes, round_trips_s, strict=True)), accepted,
    )  # fmt: skip
    facts, unread = host_facts()
    kind, shape = scenario.drafters.kind, scenario.drafters.shape
    return msgspec.structs.replace(
        profile_from(measured, fleets()),
        name=f"calibrated-{facts['machine']}",
        vocabulary=target.model.vocabulary,
        hidden=hidden_size(target.model) if kind == "eagle" else 0,
        provenance=facts
        | {
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "drafter": f"{kind} {scenario.drafters.model}" + ("" if shape.kind == "chain" else f", {shape}"),
            "target": scenario.verifiers.model,
            "precision": scenario.precision,
            "prompts": f"{scenario.workload.prompts}, the first {effort.prompts}",
            "unread": "; ".join(unread) or "nothing",
        },
    )


def bench_steps(
    drafter: Drafter, target: Target, prompt: list[int], drafters: Drafters, effort: Effort, control_s: float
) -> Points:
    """Measure all kinds of steps, each over its grid, by the names of a profile."""
    shape = drafters.shape
    depths = effort.depths
    if shape.kind != "chain":  # a deeper tree may be monstrous
        depths = (*(depth for depth in depths if depth < drafters.depth), drafters.depth)
    fed = sorted({shape.nodes(depth) + 1 for depth in depths})
    stopwatch = Stopwatch(target.model.device, control_s)
    how = prompt, effort.repeats, stopwatch
    verifications = verify_series(target, *how, shape)
    grids: dict[str, tuple[Series, Sequence[int], Sequence[int]]] = {
        "draft": (draft_series(drafter, *how), depths, effort.contexts),
        "verify": (verifications, fed, effort.contexts),
        "decode": (verifications, [1], effort.contexts),
        "draft_prefill": (draft_prefill_series(drafter, *how), effort.contexts, (0,)),
        "verify_prefill": (verify_prefill_series(target, *how), effort.contexts, (0,)),
    }
    return {name: measure(*grid, stopwatch) for name, grid in grids.items()}


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


STEPS = tuple(f"single steps, pass {number}" for number in (1, 2, 3))
IN_SERVICE = tuple(f"drafters in service, pass {number}" for number in (1, 2, 3))
STAGES = (
    STEPS[0], IN_SERVICE[0], "acceptance", "links", "idle gaps", STEPS[1], IN_SERVICE[1], "warm-up tokens",
    "stations that share a device", STEPS[2], IN_SERVICE[2],
)  # fmt: skip


def in_service(fleets: Fleets, effort: Effort) -> list[tuple[int | None, Run]]:
    """Run one fleet for each load; return the loads with their runs."""
    return [
        (targets, saturated(fleets, effort.saturated_rounds))
        if targets is None
        else (targets, half_loaded(fleets, targets, effort.loaded_rounds))
        for targets in effort.loads
    ]
