"""How far off the numbers of a plan may be: steps as fast or slow as measured runs were, and acceptance lower."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.deployments import Deployment, Load, mean_request_s
from specfleet.experiments.plan.goals import ATTAINMENT
from specfleet.experiments.plan.search import Simulations
from specfleet.experiments.plan.serving import load_curve
from specfleet.experiments.plan.trials import Interval, Values, simulated
from specfleet.fleet.acceptance.models import PerPosition, survival
from specfleet.fleet.hardware.profile import devices_in
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.labels import ASSUMED_RANGE, Basis, basis_of, rests_on_assumed
from specfleet.fleet.times.profile import HardwareProfile

STEPS = ("draft", "draft_prefill", "verify", "verify_prefill", "decode")
WIDEST = 2.0  # of a range, its upper end over its lower one, beyond which it says nothing
LOWER = 0.1  # by which acceptance may be lower (assumed)
Range = tuple[float, float]
ANY: Range = (0.0, math.inf)


class Errors(NamedTuple):
    """What measurements took over predictions: of steps and TPOT, and of TTFT; `of`: what was measured."""

    steps: Range
    ttft: Range
    of: str


RUNS = {
    ("dense", "h100", "h200"): Errors((0.93, 1.13), (0.68, 1.32), "dense models on Hopper"),
    ("dense", "b200", "b300"): Errors((0.89, 1.18), (1.15, 1.91), "dense models on Blackwell"),
    ("mixture", "h100", "h200", "b200", "b300"): Errors((0.83, 1.33), (0.74, 2.25), "mixtures of experts"),
}
"""By model and devices, of vLLM's measured runs: the middle 86 % of one random half (`bench/ranges.py`). Hopper's dense
steps, of which one half says too little of the other, have those of all dense models."""

SERVERS = {
    "vllm": Errors((0.83, 1.20), ANY, "servers fitted at another load"),
    "sglang": Errors((0.71, 1.41), ANY, "SGLang's servers"),
}
"""The same of the runs of a server's engine, each predicted by steps that meet the round of another load."""

STEP_ERROR: dict[Basis, float] = {
    "measured": 0.17, "estimated": 0.26, "stated": 0.26, "measured on an unsteady host": 0.50, "assumed": 0.50,
}  # fmt: skip
"""By which share step times are taken to be off, at 95 %, by what they rest on, where no runs were measured.

Measured: what blind predictions of a whole demo missed by at worst, on a quiet host. Estimated: of 107 step times
that others measured, our estimates miss 95 % by less (`bench/estimates.py`). Stated ones are taken for no better; for
the others the error is a guess.
"""


def errors_of(candidate: Candidate) -> Errors:
    """Return the errors of predictions for a target at its place."""
    profile = candidate.base.profile
    assert isinstance(profile, HardwareProfile)
    basis, (model, _, _) = basis_of(profile), candidate.target.rpartition("@")
    engine = candidate.server.engine if candidate.server else "vllm"
    is_known = engine == "vllm" and model and basis == "estimated"
    runs = errors_of_runs(model, devices_in(candidate.target)[0]) if is_known else None
    fits = SERVERS.get(engine) if is_fitted(candidate) or engine != "vllm" else None
    if known := [errors for errors in (runs, fits) if errors]:
        return min(known, key=lambda errors: errors.steps[1] / errors.steps[0])
    if rests_on_assumed(profile, "target"):
        return Errors(ASSUMED_RANGE, ANY, "steps on devices with assumed efficiencies")
    steps = 1 / (1 + STEP_ERROR[basis]), 1 + STEP_ERROR[basis]
    return Errors(steps, ANY if basis == "estimated" else steps, f"{basis} steps")


def is_fitted(candidate: Candidate) -> bool:
    """Return whether the measured round of a server that drafts in this way set its times."""
    server = candidate.server
    return server is not None and bool(server.slower) and candidate.drafted_by == (server.draft or "none")


def errors_of_runs(model: str, device: str) -> Errors | None:
    """Return the errors of a model on a device where runs were measured."""
    of = {"mixture" if shape_of(model).experts else "dense", device}
    return next((errors for place, errors in RUNS.items() if of <= set(place)), None)


def slowed(scenario: Scenario, factor: float, of_drafts: float = 1.0) -> Scenario:
    """Return the scenario with all steps `factor` times slower, and drafts `of_drafts` times that."""
    replace, profile, verifiers = msgspec.structs.replace, scenario.profile, scenario.verifiers
    assert isinstance(profile, HardwareProfile)
    times = {name: getattr(profile, name).slowed(factor) for name in STEPS}
    times["draft"] = times["draft"].slowed(of_drafts)
    if verifiers.verify is not None:
        verifiers = replace(verifiers, verify=verifiers.verify.slowed(factor))
    return replace(scenario, profile=replace(profile, **times), verifiers=verifiers)


def slowest(fleet: Deployment, scenario: Scenario) -> tuple[Scenario, float, float]:
    """Return the fleet with steps as slow as they may be, and by which shares steps and drafts are slower.

    The spread of an engine's versions in launching drafts adds to their error, unless a measured round has it.
    """
    profile, placed = fleet.candidate.base.profile, fleet.candidate.placed if fleet.depth else None
    assert isinstance(profile, HardwareProfile)
    steps = of_drafts = errors_of(fleet.candidate).steps[1] - 1
    if not is_fitted(fleet.candidate):
        of_drafts = ASSUMED_RANGE[1] - 1 if rests_on_assumed(profile, "drafter") else of_drafts
        of_drafts = math.hypot(of_drafts, placed.engine.spread if placed else 0.0)
    return slowed(scenario, 1 + steps, (1 + of_drafts) / (1 + steps)), steps, of_drafts


def lower(fleet: Deployment) -> tuple[float, str]:
    """Return by how much acceptance may be lower, and in words: as assumed, or by chance in the requests of a server.

    Each of those counts as a single draft, so at 95 % that is at most 1 / sqrt(requests), up to the server's depth.
    """
    server = fleet.candidate.server
    counted = server.requests if server and 0 < fleet.depth <= fleet.candidate.present else 0
    if counted <= LOWER**-2:
        return LOWER, f"{LOWER:g} lower"
    return counted**-0.5, f"{counted**-0.5:.2g} lower by chance in {counted} equally long requests, other texts aside"


def accepting(scenario: Scenario, more: float) -> Scenario:
    """Return the scenario with each draft token accepted so much more often, given that all before it were."""
    reached = survival(resolve(scenario).length_model(), scenario.drafters.depth)
    before = np.concatenate(([1.0], reached[:-1]))
    rates = np.divide(reached, before, out=np.zeros_like(reached), where=before > 0)
    changed = np.clip(rates + more, 0.0, 1.0).cumprod()
    return msgspec.structs.replace(scenario, acceptance=PerPosition(survival=tuple(map(float, changed))))


def carries(fleet: Deployment, scenario: Scenario, load: Load) -> bool:
    """Whether a fleet with a scenario's step times carries a load, by equations.

    Simulations find an overload in full steps alone, which a full KV cache prevents.
    """
    return mean_request_s(load_curve(resolve(scenario), fleet.sharing), load, fleet.replicas) < math.inf


class Ranges(NamedTuple):
    """The metrics of a fleet with steps as slow as they may be, and with acceptance as low."""

    slow: Values
    poor: Values
    errors: Errors

    def around(self, name: str, of: Interval) -> Interval:
        """Return the range of a metric; infinite where it is not known. Slow steps and poor drafts are independent."""
        more = name == "throughput"

        def worse(values: Values) -> float:
            return (of.value / values[name] if more else values[name] / of.value) - 1 if of.value else 0.0

        best, slow, poor = self.errors.steps[0], worse(self.slow), max(worse(self.poor), 0.0)
        if name.startswith("ttft"):
            best, slow = self.errors.ttft[0], max(slow, self.errors.ttft[1] - 1)
        worst = math.inf if self.slow["overload"] else 1 + math.hypot(slow, poor)
        if not worst <= WIDEST * best or name == ATTAINMENT:
            return Interval(of.value, 0.0, math.inf)
        low, high = (of.value / worst, of.value / best) if more else (of.value * best, of.value * worst)
        return Interval(of.value, min(low, of.low) if low < of.value else of.value, max(high, of.high))


def ranges_of(search: Simulations, fleet: Deployment) -> Ranges:
    """Simulate a fleet at the ends of what is not known of it."""
    scenario = search.scenario(fleet)
    slow, _, _ = slowest(fleet, scenario)
    values = simulated(slow)
    if values["overload"] or not carries(fleet, slow, search.question.load):
        values = dict.fromkeys(values, math.nan) | {"overload": 1.0}
    poor = simulated(accepting(scenario, -lower(fleet)[0])) if fleet.depth else search.values[fleet.title][0]
    return Ranges(values, poor, errors_of(fleet.candidate))


def missed(search: Simulations, values: Mapping[str, float]) -> list[str]:
    """Return what one simulation misses."""
    return [goal.text for goal in search.question.goals if goal.miss(values[goal.metric]) > 0]
