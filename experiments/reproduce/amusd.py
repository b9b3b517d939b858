"""AMUSD: table I, figures 4 and 5, and any run file of the authors; greedy, synchronous and asynchronous decoding.

The rules are `policies/overlap.py`. Run times of the authors' program hold more than the paper's algorithm does, and
what more stands beside each number.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from specfleet.experiments.reproduce.amusd_runs import GPUS, Sample, read_sample
from specfleet.experiments.reproduce.rows import Paper, PaperRow, claim, fitted_if, reproduces, row
from specfleet.experiments.reproduce.runs import root, simulated
from specfleet.fleet.acceptance.models import Geometric, committed_closed_form, rate_of_mean
from specfleet.fleet.acceptance.tokens import Agreement
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.scenario import Acceptance
from specfleet.fleet.times.effects import Power
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.step_time import StepTime

PAPER = Paper("amusd")
TABLE_1_MS, SECTION_4A_MS, FIGURE_4, FIGURE_5_W = (
    PAPER[name] for name in ("table_1_ms", "section_4a_ms", "figure_4", "figure_5_w")
)
IDLE_W = 50.0  # assumed: the paper prints none; 49 W in the authors' run file
COMPARABLE = 0.25  # assumed: how much more energy is "comparable" and "slightly higher"
DEPTH = 5  # not in the paper: the default of the authors' program, and what their run files show
COLD_S = 0.6  # assumed, the middle of 0.2 to 1: a process loads libraries and kernels for its first pass on a GPU
TOKENS = 20_000  # of the one request that is simulated
SEEDS = 20  # replications over the places that were not observed
ACCEPTED = "mean_acceptance_length"  # as the authors count accepted tokens: with the target's own
AHEAD = {"policy": "ahead", "least": 2, "busy": True}  # as the authors' program does it


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
        name="amusd", seed=seed, profile=profile, acceptance=acceptance or Geometric(0.0), drafters=drafters,
        workload={"requests": 1, "prompt_tokens": 1000, "new_tokens": tokens},
    )  # fmt: skip


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
    plain_s, synchronous_s = (TABLE_1_MS[dataset][strategy] / 1000 for strategy in ("greedy", "sd"))
    draft_s = SECTION_4A_MS["draft"] / 1000
    profile = profile_of("amusd-table1", "table I", draft_s, plain_s, catch_up_s=draft_s, power=power)
    return profile, Geometric(beta_of(draft_s, plain_s, synchronous_s))


@reproduces(PAPER)
def amusd_table1() -> Iterator[PaperRow]:
    """Table I: acceptance fitted to the synchronous row of each dataset, the asynchronous one predicted from it."""
    for dataset, paper in TABLE_1_MS.items():
        case = {"dataset": dataset}
        profile, acceptance = of_table_1(dataset)
        sd_ms, amusd_ms = (
            1000 * total_s(decode(profile, acceptance, TOKENS, asynchronous)) / TOKENS for asynchronous in (False, True)
        )
        yield row("token time of greedy, ms", case, "input", paper["greedy"], paper["greedy"])
        yield row("acceptance", case, "fitted", None, acceptance.beta)
        yield row("token time of sd, ms", case, "fitted", paper["sd"], sd_ms)
        yield row("token time of amusd, ms", case, "predicted", paper["amusd"], amusd_ms)
        up = paper["greedy"] / paper["amusd"]
        yield row("speed-up of amusd", case, "identity", up, paper["greedy"] / amusd_ms)
        yield row("amusd over sd", case, "identity", paper["sd"] / paper["amusd"], sd_ms / amusd_ms)


@reproduces(PAPER)
def amusd_fig4() -> Iterator[PaperRow]:
    """Figure 4: accepted tokens a verification; acceptance from the synchronous number, the asynchronous predicted."""
    beta, draft_ms = rate_of_mean(FIGURE_4["sd"], DEPTH), SECTION_4A_MS["draft"]
    yield row("acceptance", {}, "fitted", None, beta)
    verifications_ms = {"section IV-A": SECTION_4A_MS["verify"], "table I": TABLE_1_MS["RefactorChat"]["greedy"]}
    for name, verify_ms in verifications_ms.items():
        profile = profile_of("amusd-fig4", name, draft_ms / 1000, verify_ms / 1000, catch_up_s=draft_ms / 1000)
        for strategy, paper in FIGURE_4.items():
            case = {"draft_ms": draft_ms, "verify_ms": verify_ms, "times from": name, "strategy": strategy}
            ours = measure(decode(profile, Geometric(beta), TOKENS, strategy == "amusd"))[ACCEPTED].value
            once = paper if name == "section IV-A" else None  # the figure has one number for each strategy
            yield row("accepted a verification", case, fitted_if(strategy == "sd"), once, ours)


@reproduces(PAPER)
def amusd_fig5() -> Iterator[PaperRow]:
    """Figure 5: power and utilisation of two GPUs, and energy a token; utilisation is simulated, watts are stated."""
    plain_w = FIGURE_5_W["greedy"]
    synchronous = [measure(decode(*of_table_1(name), TOKENS)) for name in TABLE_1_MS]
    drafting = float(np.mean([metrics["load"].value for metrics in synchronous]))
    power = Power(IDLE_W, (FIGURE_5_W["sd"] - (1 - drafting) * plain_w) / drafting, plain_w)
    yield row("power of a GPU that verifies, W", {"strategy": "greedy"}, "input", plain_w, power.verify_w)
    yield row("power of a GPU that drafts, W", {}, "fitted", None, power.draft_w)
    powers_w = dict[str, list[float]](sd=[], amusd=[])
    for dataset, paper_ms in TABLE_1_MS.items():
        energy_j = {"greedy": (IDLE_W + plain_w) * paper_ms["greedy"] / 1000}
        for strategy, watts in powers_w.items():
            metrics = measure(decode(*of_table_1(dataset, power), TOKENS, strategy == "amusd"))
            energy_j[strategy] = metrics["energy_j_per_token"].value
            watts.append(metrics["power_w"].value)
            case = {"dataset": dataset, "strategy": strategy}
            yield row("drafting, share of time", case, "predicted", None, metrics["load"].value)
            yield row("verifying, share of time", case, "predicted", None, metrics["target_load"].value)
        for strategy, joules in energy_j.items():
            yield row("energy, J/token", {"dataset": dataset, "strategy": strategy}, "predicted", None, joules)
        more = energy_j["amusd"] / energy_j["sd"] - 1
        yield claim("amusd takes less energy than greedy", {"dataset": dataset}, energy_j["amusd"] < energy_j["greedy"])
        yield claim("amusd takes slightly more energy than sd", {"dataset": dataset}, 0 < more < COMPARABLE)
    mean = {"dataset": "mean"}
    one_w, both_w = float(np.mean(powers_w["sd"])) - IDLE_W, float(np.mean(powers_w["amusd"]))
    yield row("power of one GPU, W", mean | {"strategy": "sd"}, "fitted", FIGURE_5_W["sd"], one_w)
    yield row("power of both GPUs, W", mean | {"strategy": "amusd"}, "predicted", FIGURE_5_W["amusd"], both_w)


@reproduces(PAPER)
def amusd_a100(trace: Path) -> Iterator[PaperRow]:
    """Predict amusd of the authors' run file from its sd run, which is put together from its own parts before."""
    sample, case = read_sample(trace), {"sample": 0}
    sd, agreement = sample.sd, sample.sd.agreement
    yield row("depth", case, "input", None, sd.depth)
    yield row("agreement of drafter and target", case, "input", None, agreement.unknown)
    alone = _starting(profile_of("a100", "sd", sd.draft_s, sd.verify_s, catch_up_s=sd.catch_up_s), sd.start_up_s)
    run = decode(alone, agreement, sd.tokens_generated, depth=sd.depth)
    where, accepted = case | {"strategy": "sd", "from": "its own step times"}, measure(run)[ACCEPTED].value
    yield row("total_s", where, "identity", sd.total_time, total_s(run))
    yield row("accepted a verification", where, "identity", sd.committed_a_verification, accepted)
    yield from _amusd_rows(case | {"strategy": "amusd", "from": "sd alone"}, sample, agreement)


def _amusd_rows(case: dict[str, Any], sample: Sample, agreement: Agreement) -> Iterator[PaperRow]:
    """Predict the amusd run from the sd run: a verification takes the same for any number of drafts, and less without
    one; prefills begin before the first verification's clock, the drafter's within it."""
    sd, amusd = sample.sd, sample.amusd
    draft_prefill_s, verify_prefill_s = sd.prefills_s
    verify_s = sd.verify_s + sd.gap_s
    alone_s = min(sample.token_s(COLD_S) + sd.gap_s, verify_s)
    drafts = Roofline(tokens=(1, 2), pass_s=(0.0, 0.0), host_s=verify_s - alone_s)
    profile = msgspec.structs.replace(
        profile_of("a100", "sd alone", sd.draft_s + sd.gap_s, verify_s, power=sample.powers),
        verify=StepTime(base_s=alone_s, roofline=drafts),
        draft_prefill=StepTime(base_s=max(COLD_S, draft_prefill_s) + draft_prefill_s),
    )
    starting = _starting(profile, max(COLD_S, verify_prefill_s))
    runs = [decode(starting, agreement, amusd.tokens_generated, True, seed) for seed in range(SEEDS)]
    metrics = combine([measure(run) for run in runs])
    ours_s = float(np.mean([total_s(run) for run in runs]))
    yield row("total_s", case, "predicted", amusd.total_time, ours_s, null=sd.total_time)
    paper, null = amusd.committed_a_verification, sd.committed_a_verification
    yield row("accepted a verification", case, "predicted", paper, metrics[ACCEPTED].value, null=null)
    joules = [sum(map(run.power_w, range(GPUS))) * run.total_time / run.tokens_generated for run in (amusd, sd)]
    yield row("energy, J/token", case, "predicted", joules[0], metrics["energy_j_per_token"].value, null=joules[1])


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
