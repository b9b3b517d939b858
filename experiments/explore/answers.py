"""A star at given sliders: what the equations say of it, and what one short simulation measures."""

import math
import threading
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fleet.acceptance.models import Geometric, committed_closed_form
from fleet.errors import InputError
from fleet.inputs.strict import convert
from fleet.records.metrics.measure import assess
from fleet.records.metrics.window import Metric
from fleet.scenario.facts import middle_context
from fleet.scenario.reading import change_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import mean_lengths
from fleet.times.step_time import StepTime
from sim.analytic import StarPrediction, throughput
from sim.predict import predict_fleet, star_inputs
from sim.run import observe

MOST_TARGETS = 256
TOKENS = 100_000  # of a simulation: hundredths of a second compiled, a second or two with SimPy
MOST_TOKENS = 500_000  # the same where REQUESTS of each target come to more
REQUESTS = 4  # of each target, at least: fewer leave no window
Ms = Annotated[float, Meta(ge=0, le=1e6)]


class BusyError(Exception):
    """Another simulation is running."""


class Sliders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A star as the page sets it, in its units.

    Keys:
        N (targets): `N`, the number of targets.
        depth (tokens): `d`, draft tokens a round.
        beta (share): Probability that a draft token is accepted, given that all before it were.
        draft_base_ms (ms): Time of a draft step without its tokens.
        draft_token_ms (ms): Time of each draft token.
        verify_ms (ms): Time of a verification.
        link_ms (ms): Latency of the link, one way.
        arrivals_per_s (requests/s): Rate of Poisson arrivals; 0 is a closed loop.
    """

    N: Annotated[int, Meta(ge=1, le=MOST_TARGETS)]
    depth: Annotated[int, Meta(ge=1, le=64)]
    beta: Annotated[float, Meta(ge=0, le=1)]
    draft_base_ms: Ms
    draft_token_ms: Ms
    verify_ms: Ms
    link_ms: Ms
    arrivals_per_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class Analytic(msgspec.Struct, frozen=True):
    """What the equations say.

    Keys:
        star: The prediction at the sliders, of a closed loop.
        tpot_s: Time of a target for each token.
        offered_tokens_per_s (tokens/s): What arrivals ask for; 0 in a closed loop.
        curve (tokens/s): Throughput for N = 1, 2, ...
    """

    star: StarPrediction
    tpot_s: float
    offered_tokens_per_s: float
    curve: list[float]


class Simulated(msgspec.Struct, frozen=True):
    """What a simulation measured.

    Keys:
        metrics: By name.
        what: The simulation in words.
        overload: The verdict where more arrives than can be served; empty elsewhere.
    """

    metrics: dict[str, Metric]
    what: str
    overload: str


class Explorer:
    """Answers about one scenario with changed numbers.

    - `start`: the sliders at which it is unchanged.
    - `running`: held by a simulation; there is one at a time.

    Raises InputError where the scenario is no star, or beyond the sliders.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.fleet = scenario, resolve(scenario)
        predict_fleet(self.fleet)
        self.start = _sliders_of(scenario)
        self.answer_tokens = mean_lengths(scenario.workload)[1]
        self.running = threading.Lock()

    def analytic(self, at: Sliders) -> Analytic:
        """Evaluate the equations. Raises InputError where they do not hold."""
        star = predict_fleet(resolve(self._scenario_at(at)))
        last = min(MOST_TARGETS, max(8, 2 * star.N_full, at.N + 1))
        curve = [throughput(N, star.S_s, star.Z_s, star.mean_acceptance_length) for N in range(1, last + 1)]
        tpot_s = 1 / star.throughput_per_target.with_bonus
        return Analytic(star, tpot_s, at.arrivals_per_s * self.answer_tokens, curve)

    def simulate(self, at: Sliders) -> Simulated:
        """Simulate once, for the metrics alone. Raises InputError for too many tokens, BusyError beside another."""
        requests = at.N * max(REQUESTS, math.ceil(TOKENS / (at.N * self.answer_tokens)))
        if requests * self.answer_tokens > MOST_TOKENS:
            much = f"N = {at.N}: {requests} requests of {self.answer_tokens:g} tokens are too much for the page"
            raise InputError(f"{much}; allowed: {MOST_TOKENS} tokens; `specfleet simulate` takes more")
        arrivals = {"process": "poisson", "per_s": at.arrivals_per_s} if at.arrivals_per_s else None
        scenario = self._scenario_at(at, {"workload.requests": requests, "workload.arrivals": arrivals})
        if not self.running.acquire(blocking=False):
            raise BusyError("a simulation is running; ask again when it has ended")
        try:
            metrics, overload = assess(observe(scenario))
        finally:
            self.running.release()
        what = f"{requests} requests of {self.answer_tokens:g} tokens, seed {scenario.seed}"
        return Simulated(metrics, what, "" if overload is None else overload.line())

    def _scenario_at(self, at: Sliders, more: dict[str, Any] | None = None) -> Scenario:
        """Return the scenario at these sliders. Its overhead, prefills, spreads and bandwidth stay."""
        draft, verify = self.fleet.drafter_times(0).draft, self.fleet.verifier_times(0).verify
        draft_at = StepTime(at.draft_base_ms / 1e3, at.draft_token_ms / 1e3, spread=draft.spread)
        changes = {
            "verifiers.count": at.N,
            "drafters.depth": at.depth,
            "acceptance": Geometric(at.beta),
            "drafters.tiers": [{"first": 1, "step": draft_at}],
            "verifiers.tiers": [{"first": 1, "step": StepTime(at.verify_ms / 1e3, spread=verify.spread)}],
            "link": msgspec.structs.replace(self.fleet.link(0).time, latency_s=at.link_ms / 1e3),
            "workload.streams": 0,
        }
        return change_scenario(self.scenario, changes | (more or {}))


def _sliders_of(scenario: Scenario) -> Sliders:
    """Return a scenario's numbers: step times of its depth at the middle of a text, and one acceptance of its mean."""
    fleet = resolve(scenario)
    depth, context = fleet.drafters.depth, middle_context(fleet)
    draft, verify = fleet.drafter_times(0).draft, fleet.verifier_times(0).verify
    draft_s = draft.mean_s(depth, context)
    token_s = draft.mean_s(depth + 1, context) - draft_s
    times_s = {
        "draft_base_ms": max(0.0, draft_s - depth * token_s),
        "draft_token_ms": token_s,
        "verify_ms": verify.mean_s(fleet.drafters.shape.nodes(depth) + 1, context),
        "link_ms": fleet.link(0).time.latency_s,
    }
    values = {"N": fleet.verifiers.count, "depth": depth, "beta": _beta_of(scenario, depth)}
    times_ms = {name: round(1e3 * time_s, 9) for name, time_s in times_s.items()}  # without rounding errors of sums
    return convert(values | times_ms, Sliders, f"scenario {scenario.name!r}, as sliders")


def _beta_of(scenario: Scenario, depth: int) -> float:
    """Return the scenario's beta, or the one of as many tokens a round."""
    if isinstance(scenario.acceptance, Geometric):
        return scenario.acceptance.beta
    from scipy.optimize import brentq  # noqa: PLC0415 (it takes longer to import than all the rest)

    tokens = star_inputs(resolve(scenario)).accepted_per_round + 1
    return float(brentq(lambda beta: committed_closed_form(beta, depth) - tokens, 0.0, 1.0))
