"""Adaptive verification as users of vLLM measured it: its curve over load, and its gain for long drafts.

The step's times come from the rows without drafts, acceptance from one row whose drafts are all verified.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from specfleet.experiments.reproduce.rows import Paper, PaperRow, Reproduction, claim, fitted_if, in_parts, row
from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.acceptance.signals import Regional
from specfleet.fleet.hardware.shipped import engine_of
from specfleet.fleet.policies.adaptive import Adaptive
from specfleet.fleet.policies.allocate import Fixed
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers, Workload
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.run import simulate

ADAPTIVE = Paper("methods_adaptive", Path(__file__).parent)
DATA = ()  # the figures are beside this file
WAVES, LEAST = 2, 24  # requests of a loop for each in flight, and of all at least
REPEATS = 3  # of the fit of step times
Law = Geometric | Regional


def reproduce(_folder: Path | None = None) -> Reproduction:
    """Hold tokens/s with chosen drafts against published ones, one part for each thread."""
    load, long = ADAPTIVE["load"], ADAPTIVE["long"]
    curve_s = fitted_curve(load)
    parts = {load["thread"]: _over_load(load, curve_s), long["thread"]: _of_long_drafts(long, load, curve_s)}
    return in_parts("methods_adaptive", parts, ADAPTIVE.assumed())


def profile_of(table: dict[str, Any], curve_s: np.ndarray) -> HardwareProfile:
    """Return a profile whose pass over as many tokens as rows are in flight takes these times."""
    row_s = engine_of("vllm").of_mixtures().row_s.value
    passes = Roofline(tokens=table["in_flight"], pass_s=tuple(map(float, curve_s)))
    token_s = table["draft_share"] * (passes.pass_s[-1] - passes.pass_s[-2]) / (passes.tokens[-1] - passes.tokens[-2])
    step = StepTime(base_s=row_s, per_row_s=row_s, roofline=passes)
    draft = StepTime(table["draft_share"] * passes.pass_s[0], per_token_s=token_s, per_row_token_s=token_s)
    return HardwareProfile("stated", draft, step, decode=step, verify_prefill=step, draft_prefill=draft)


def tokens_per_s(
    table: dict[str, Any], profile: HardwareProfile, rows: int, rule: Fixed | Adaptive | None, law: Law
) -> tuple[float, float]:
    """Return tokens/s of a simulated closed loop, and its accepted length; without a rule nothing is drafted."""
    prompt = table["prompt_tokens"]
    scenario = Scenario(
        name="methods_adaptive",
        profile=profile,
        acceptance=law,
        drafters=Drafters(kind="eagle", place="target", count=int(rule is not None)),
        verifiers=Verifiers(max_num_batched_tokens=8192, max_num_seqs=512, allocate=rule),
        workload=Workload(
            requests=max(WAVES * rows, LEAST), streams=rows, new_tokens=table["new_tokens"],
            prompt_tokens=Between(**prompt) if isinstance(prompt, dict) else prompt,
        ),
    )  # fmt: skip
    metrics = measure(simulate(scenario))
    return metrics["throughput"].value, metrics["mean_acceptance_length"].value if rule else 1.0


def fitted_curve(table: dict[str, Any]) -> np.ndarray:
    """Return the times of passes with which the simulated plain runs have the measured tokens/s."""
    counts, plain = np.array(table["in_flight"]), np.array(table["plain"])
    curve_s = counts / plain
    for _ in range(REPEATS):
        profile = profile_of(table, curve_s)
        curve_s = (
            curve_s * [tokens_per_s(table, profile, int(rows), None, Geometric(0.5))[0] for rows in counts] / plain
        )
    return np.asarray(np.maximum.accumulate(curve_s))


def _over_load(table: dict[str, Any], curve_s: np.ndarray) -> Iterator[PaperRow]:
    """Yield tokens/s by load: all drafts verified, and those that adaptive verification chooses."""
    profile, fixed = profile_of(table, curve_s), Fixed(table["depth"])
    for by in ("position", "entropy"):

        def law(mean: float, by: str = by) -> Law:
            return Geometric(mean) if by == "position" else Regional(mean, coupling=1.0)

        def too_fast(mean: float) -> float:
            return tokens_per_s(table, profile, table["in_flight"][0], fixed, law(mean))[0] - table["fixed"][0]

        of_tokens = law(brentq(too_fast, 0.5, 0.95, xtol=1e-3))
        pays = []
        for number, rows in enumerate(table["in_flight"]):
            case = {"in flight": rows, "by": by}
            ours = [
                tokens_per_s(table, profile, rows, rule, of_tokens)[0] for rule in (fixed, Adaptive(table["depth"], by))
            ]
            yield row("tokens/s, all drafts verified", case, fitted_if(not number), table["fixed"][number], ours[0])
            yield row("tokens/s, chosen drafts verified", case, "predicted", table["adaptive"][number], ours[1])
            pays += [rows] * (ours[0] > table["plain"][number])
        yield claim("all drafts pay up to 128 in flight, and not at 256", {"by": by}, max(pays) == 128)


def _of_long_drafts(table: dict[str, Any], load: dict[str, Any], curve_s: np.ndarray) -> Iterator[PaperRow]:
    """Yield the gain of chosen drafts over all, and accepted lengths."""
    fixed, shared = Fixed(table["depth"]), table | {name: load[name] for name in ("draft_share", "in_flight")}

    def loop(times: float, mean: float, rule: Fixed | Adaptive) -> tuple[float, float]:
        law = Regional(mean, coupling=1.0)
        return tokens_per_s(shared, profile_of(shared, times * curve_s), table["in_flight"], rule, law)

    mean = brentq(lambda mean: loop(1.0, mean, fixed)[1] - table["accepted"]["fixed"], 0.5, 0.95, xtol=1e-3)
    times = loop(1.0, mean, fixed)[0] / table["fixed"]
    (all_per_s, all_length), (per_s, length) = (
        loop(times, mean, rule) for rule in (fixed, Adaptive(table["depth"], "entropy"))
    )
    case = {"in flight": table["in_flight"]}
    yield row("tokens/s, all drafts verified", case, "fitted", table["fixed"], all_per_s)
    yield row("accepted length, all drafts verified", case, "fitted", table["accepted"]["fixed"], all_length)
    yield row("accepted length, chosen drafts verified", case, "predicted", table["accepted"]["adaptive"], length)
    yield row("chosen drafts over all", case, "predicted", table["adaptive"] / table["fixed"], per_s / all_per_s)
