"""AMUSD: table I, figures 4 and 5, and any run file of the authors; greedy, synchronous and asynchronous decoding.

The rules are `policies/overlap.py`. Run times of the authors' program hold more than the paper's algorithm does, and
what more stands beside each number.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from specfleet.experiments.reproduce.amusd_runs import (
    GPUS,
    OwnSteps,
    Sample,
    agreement_of,
    catch_up_s,
    depth_of,
    greedy_by_monitor_s,
    launched_before_s,
    own_steps,
    powers_of,
    prefills_of,
    read_sample,
    token_s,
)
from specfleet.experiments.reproduce.rows import Inputs, PaperRow, assuming, claim, row
from specfleet.experiments.reproduce.runs import acceptance_behind, root, simulated
from specfleet.fleet.acceptance.models import Geometric, committed_closed_form
from specfleet.fleet.acceptance.tokens import Agreement
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.scenario import Acceptance
from specfleet.fleet.times.effects import Power
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.step_time import StepTime

# Table I: mean token time in ms, autoregressive, speculative, AMUSD. Section IV-A: a draft takes about 10 ms a token.
TABLE_1_MS = {
    "HumanEval": (22.15, 17.88, 14.08),
    "MT-Bench": (21.89, 20.64, 16.75),
    "RefactorChat": (27.42, 19.18, 13.96),
}
DRAFT_MS = 10.0
VERIFY_MS = 25.0  # section IV-A: a verification takes about 25 ms
# Figure 4, one sample of RefactorChat: accepted tokens a verification, the target's own included, as the authors count.
ACCEPTED_SYNCHRONOUS, ACCEPTED_ASYNCHRONOUS = 5.35, 2.75
# Section IV-C, of figure 5: watts of one GPU that decodes by either conventional way, and of both GPUs under AMUSD.
PLAIN_W, SYNCHRONOUS_W, ASYNCHRONOUS_W = 220.0, 150.0, 300.0
IDLE_W = 50.0  # assumed: the paper prints none; 49 W in the authors' run file
COMPARABLE = 0.25  # assumed: how much more energy is "comparable" and "slightly higher"
DEPTH = 5  # not in the paper: the default of the authors' program, and what their run files show
TOKENS = 20_000  # of the one request that is simulated
SEEDS = 20  # replications over the places that were not observed
ACCEPTED = "mean_acceptance_length"  # as the authors count accepted tokens: with the target's own
AHEAD = {"policy": "ahead", "least": 2, "busy": True}  # as the authors' program does it

ASSUMED = [
    "the paper does not print the draft count: 5, as the authors' run files show (full rounds commit 6 tokens)",
    "their drafter feeds its own last token by a step of its own after full acceptance: one more draft step then",
    "their verifier waits for two draft tokens, and decodes one token alone while the drafter rolls back",
]


def decode(
    profile: HardwareProfile,
    acceptance: Acceptance | None,
    tokens: int,
    asynchronous: bool = False,
    seed: int = 0,
    depth: int = DEPTH,
) -> Run:
    """Simulate one request, with drafter and target on a device each; without acceptance, the target alone."""
    drafters: dict[str, Any] = {"depth": depth} if acceptance is not None else {"count": 0}
    if asynchronous:
        drafters["overlap"] = AHEAD
    return simulated(
        name="amusd",
        seed=seed,
        profile=profile,
        acceptance=acceptance or Geometric(0.0),
        drafters=drafters,
        workload={"requests": 1, "prompt_tokens": 1000, "new_tokens": tokens},
    )


def total_s(run: Run) -> float:
    """Return when the last step of a run ended."""
    return float(run.table["time_s"].to_numpy()[-1])


def beta_of(draft_s: float, verify_s: float, token_s: float) -> float:
    """Return the acceptance at which synchronous decoding takes `token_s` a token, with the authors' extra draft."""

    def surplus_s(beta: float) -> float:
        round_s = DEPTH * draft_s + beta**DEPTH * draft_s + verify_s
        return round_s / committed_closed_form(beta, DEPTH) - token_s

    return root(surplus_s, 0.0, 1.0)


def of_table_1(dataset: str, power: Power | None = None) -> tuple[HardwareProfile, Geometric]:
    """Return the step times of a dataset of table I, and the acceptance behind its synchronous row."""
    plain_s, synchronous_s, _ = (time_ms / 1000 for time_ms in TABLE_1_MS[dataset])
    draft_s = DRAFT_MS / 1000
    profile = profile_of("amusd-table1", "table I", draft_s, plain_s, catch_up_s=draft_s, power=power)
    return profile, Geometric(beta_of(draft_s, plain_s, synchronous_s))


@assuming(
    *ASSUMED,
    "a draft takes 10 ms (section IV-A); a verification takes as long as a token of the autoregressive row",
    "every token is accepted with one probability, the same all through a dataset; start-up is left out",
)
def amusd_table1(_inputs: Inputs) -> Iterator[PaperRow]:
    """Table I: acceptance fitted to the synchronous row of each dataset, the asynchronous one predicted from it."""
    for dataset, (plain_ms, synchronous_ms, asynchronous_ms) in TABLE_1_MS.items():
        case = {"dataset": dataset}
        profile, acceptance = of_table_1(dataset)
        sd_ms, amusd_ms = (
            1000 * total_s(decode(profile, acceptance, TOKENS, asynchronous)) / TOKENS for asynchronous in (False, True)
        )
        yield row("token time of greedy, ms", case, "input", plain_ms, plain_ms)
        yield row("acceptance", case, "fitted", None, acceptance.beta)
        yield row("token time of sd, ms", case, "fitted", synchronous_ms, sd_ms)
        yield row("token time of amusd, ms", case, "predicted", asynchronous_ms, amusd_ms)
        yield row("speed-up of amusd", case, "identity", plain_ms / asynchronous_ms, plain_ms / amusd_ms)
        yield row("amusd over sd", case, "identity", synchronous_ms / asynchronous_ms, sd_ms / amusd_ms)


@assuming(
    *ASSUMED,
    "accepted counts the target's own token, as the authors do",
    "the times of section IV-A are held against the figure; those of table I stand beside them and do not count",
)
def amusd_fig4(_inputs: Inputs) -> Iterator[PaperRow]:
    """Figure 4: accepted tokens a verification; acceptance from the synchronous number, the asynchronous predicted."""
    beta = acceptance_behind(ACCEPTED_SYNCHRONOUS, DEPTH)
    yield row("acceptance", {}, "fitted", None, beta)
    verify_by_table_ms = TABLE_1_MS["RefactorChat"][0]
    for name, draft_ms, verify_ms in (("section IV-A", DRAFT_MS, VERIFY_MS), ("table I", DRAFT_MS, verify_by_table_ms)):
        profile = profile_of("amusd-fig4", name, draft_ms / 1000, verify_ms / 1000, catch_up_s=draft_ms / 1000)
        case = {"draft_ms": draft_ms, "verify_ms": verify_ms, "times from": name}
        for strategy, paper, kind in (
            ("sd", ACCEPTED_SYNCHRONOUS, "fitted"),
            ("amusd", ACCEPTED_ASYNCHRONOUS, "predicted"),
        ):
            run = decode(profile, Geometric(beta), TOKENS, strategy == "amusd")
            once = paper if name == "section IV-A" else None  # the figure has one number for each strategy
            yield row(
                "accepted a verification", case | {"strategy": strategy}, kind, once, measure(run)[ACCEPTED].value
            )


@assuming(
    *ASSUMED,
    "step times and acceptance are those of table I; the figure names no dataset, so the mean over all three counts",
    (
        "150 to 220 W are of one GPU, as in the authors' run file (164 and 227 W): 220 W decoding and verifying, 150 W "
        f"in the mean of synchronous rounds, which sets drafting; {IDLE_W:g} W idle is assumed"
    ),
    f"energy is that of both GPUs, one of them idle unless AMUSD runs; up to {COMPARABLE:.0%} more is comparable",
)
def amusd_fig5(_inputs: Inputs) -> Iterator[PaperRow]:
    """Figure 5: power and utilisation of two GPUs, and energy a token; utilisation is simulated, watts are stated."""
    synchronous = {name: measure(decode(*of_table_1(name), TOKENS)) for name in TABLE_1_MS}
    drafting = float(np.mean([metrics["load"].value for metrics in synchronous.values()]))
    power = Power(IDLE_W, (SYNCHRONOUS_W - (1 - drafting) * PLAIN_W) / drafting, PLAIN_W)
    yield row("power of a GPU that verifies, W", {"strategy": "greedy"}, "input", PLAIN_W, power.verify_w)
    yield row("power of a GPU that drafts, W", {}, "fitted", None, power.draft_w)
    powers_w = dict[str, list[float]](sd=[], amusd=[])
    for dataset, (plain_ms, *_) in TABLE_1_MS.items():
        energy_j = {"greedy": (IDLE_W + PLAIN_W) * plain_ms / 1000}
        for strategy, of in powers_w.items():
            metrics = measure(decode(*of_table_1(dataset, power), TOKENS, strategy == "amusd"))
            energy_j[strategy] = metrics["energy_j_per_token"].value
            of.append(metrics["power_w"].value)
            case = {"dataset": dataset, "strategy": strategy}
            yield row("drafting, share of time", case, "predicted", None, metrics["load"].value)
            yield row("verifying, share of time", case, "predicted", None, metrics["target_load"].value)
        for strategy, joules in energy_j.items():
            yield row("energy, J/token", {"dataset": dataset, "strategy": strategy}, "predicted", None, joules)
        more = energy_j["amusd"] / energy_j["sd"] - 1
        yield claim("amusd takes less energy than greedy", {"dataset": dataset}, energy_j["amusd"] < energy_j["greedy"])
        yield claim("amusd takes slightly more energy than sd", {"dataset": dataset}, 0 < more < COMPARABLE)
    mean = {"dataset": "mean"}
    one_gpu_w = float(np.mean(powers_w["sd"])) - IDLE_W
    yield row("power of one GPU, W", mean | {"strategy": "sd"}, "fitted", SYNCHRONOUS_W, one_gpu_w)
    both_w = float(np.mean(powers_w["amusd"]))
    yield row("power of both GPUs, W", mean | {"strategy": "amusd"}, "predicted", ASYNCHRONOUS_W, both_w)


@assuming(
    *ASSUMED,
    "greedy text does not depend on the strategy: places where the sd run shows agreement or mismatch keep it",
    "places that the sd run does not show (those of bonus tokens) agree as often as the others",
    (
        "the authors' clock of a greedy token stops when its kernels are launched: its total is put together from "
        "the GPU monitor's clock, whose delay the other two runs give"
    ),
    (
        "(a) knows of the start-up the prefills, as far as the first steps of sd wait for them, and how long "
        "before sd's clock they were launched, as far as the monitor's clock tells (of what it leaves open, 0.2 to "
        "1 s); the authors' drafter prefills twice, after the target, and each process loads its own kernels"
    ),
    "(a) lets a draft that goes to the other process wait as long as a round of sd does between its steps",
    (
        "(b) takes a verification that waits for no drafts to be as long as in sd, and reads the start-up off the "
        "first one, which waits for the drafter's; the target's own, before that clock, takes as long as the "
        "drafter's first pass"
    ),
    f"energy is that of {GPUS} GPUs; powers: idle and verifying from greedy, drafting from sd; start-up is idle",
)
def amusd_a100(inputs: Inputs) -> Iterator[PaperRow]:
    """Predict amusd of the authors' run file from its sd run; what else is there is put together from its own parts.

    Raises InputError without `--trace FILE`.
    """
    if inputs.trace is None:
        raise InputError("reproduce amusd-a100: give the authors' run file, --trace FILE (JSON)")
    sample, case = read_sample(Path(inputs.trace)), {"sample": 0}
    sd, agreement = sample.sd, agreement_of(sample.sd)
    yield row("depth", case, "input", None, depth_of(sd))
    yield row("agreement of drafter and target", case, "input", None, agreement.unknown)
    yield from _greedy_rows(case | {"strategy": "greedy"}, sample)
    own = _starting(profile_of("a100", "sd", sd.draft_s, sd.verify_s, catch_up_s=catch_up_s(sd)), sd.start_up_s)
    run = decode(own, agreement, sd.tokens_generated, depth=depth_of(sd))
    where, accepted = case | {"strategy": "sd", "from": "its own step times"}, measure(run)[ACCEPTED].value
    yield row("total_s", where, "identity", sd.total_time, total_s(run))
    yield row("accepted a verification", where, "identity", sd.committed_a_verification, accepted)
    yield from _amusd_rows(case | {"strategy": "amusd"}, sample, agreement)


def _greedy_rows(case: dict[str, Any], sample: Sample) -> Iterator[PaperRow]:
    """Put the greedy run together from the time of a token on the monitor's clock."""
    greedy, sd = sample.greedy, sample.sd
    first_s = greedy.token_times[0]
    token_s = (greedy_by_monitor_s(sample) - first_s) / (greedy.tokens_generated - 1)
    alone = profile_of("a100", "greedy", sd.draft_s, sd.verify_s, decode=StepTime(base_s=token_s))
    ours_s = total_s(decode(_starting(alone, first_s), None, greedy.tokens_generated))
    launched_s = float(np.sum(greedy.token_times))
    yield row("total_s", case | {"from": "its monitor"}, "fitted", greedy.total_time, ours_s)
    yield row("sum of its token times, s", case, "identity", greedy.total_time, launched_s)


def _amusd_rows(case: dict[str, Any], sample: Sample, agreement: Agreement) -> Iterator[PaperRow]:
    """Predict the amusd run (a) from the sd run, with what its loop adds; (b) by its own step times, fitted."""
    sd, amusd = sample.sd, sample.amusd
    power, launch_s = powers_of(sample), launched_before_s(sample)
    draft_prefill_s, verify_prefill_s = prefills_of(sd)
    of_sd = OwnSteps(
        draft_s=sd.draft_s + sd.gap_s,
        verify_s=sd.verify_s + sd.gap_s,
        alone_s=token_s(sample, launch_s) + sd.gap_s,
        before_s=max(launch_s, verify_prefill_s),
        within_s=max(launch_s, draft_prefill_s) + draft_prefill_s,
    )
    for name, kind, steps in (
        ("(a) sd alone", "predicted", of_sd),
        ("(b) own step times", "fitted", own_steps(sample)),
    ):
        profile = _starting(profile_of("a100", name, steps.draft_s, steps.verify_s, power=power), steps.before_s)
        # A verification takes the same for any number of drafts, and less without one.
        alone_s = min(steps.alone_s, steps.verify_s)
        drafts = Roofline(tokens=(1, 2), pass_s=(0.0, 0.0), host_s=steps.verify_s - alone_s)
        verify = StepTime(base_s=alone_s, roofline=drafts)
        profile = msgspec.structs.replace(profile, verify=verify, draft_prefill=StepTime(base_s=steps.within_s))
        runs = [decode(profile, agreement, amusd.tokens_generated, True, seed) for seed in range(SEEDS)]
        metrics = combine([measure(run) for run in runs])
        where = case | {"from": name}
        ours_s = float(np.mean([total_s(run) for run in runs]))
        yield row("total_s", where, kind, amusd.total_time, ours_s)
        paper = amusd.committed_a_verification
        yield row("accepted a verification", where, kind, paper, metrics[ACCEPTED].value)
        joules = sum(map(amusd.power_w, range(GPUS))) * amusd.total_time / amusd.tokens_generated
        yield row("energy, J/token", where, kind, joules, metrics["energy_j_per_token"].value)


def profile_of(name: str, source: str, draft_s: float, verify_s: float, **more: Any) -> HardwareProfile:
    """Build a profile from mean step times, in seconds; `source`: which run they are of."""
    return HardwareProfile(
        name=name,
        draft=StepTime(per_token_s=draft_s),
        verify=StepTime(base_s=verify_s),
        sources={"draft": source, "verify": source},
        **more,
    )


def _starting(profile: HardwareProfile, start_up_s: float) -> HardwareProfile:
    """Return the profile with a start-up before the first token."""
    return msgspec.structs.replace(profile, verify_prefill=StepTime(base_s=max(start_up_s, 0.0)))
