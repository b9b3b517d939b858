"""Every fleet by equations, in microseconds each: approximate, good for leaving out what cannot be the answer.

Targets that decode all the time: the star's equations, or approximate mean value analysis where services or returns
vary (`sim/approximate.py`). Arrivals: the mean rates of rounds decide how many rows share a step, and whether the fleet
can carry the load at all; work that arrives between steps waits for half of one.
"""

import math
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from specfleet.experiments.plan.question import APART, COLOCATED, PLAIN, Family, FleetShape, Kind, Question
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.stations.star import StarInputs, star_inputs
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.approximate import rounds_per_s

MAX_ROWS = 256  # of a step; beyond, a station does not come after its work
MAX_TURNS = 200
OFF = 0.10  # by how much equations may take a target that drafts for itself for faster than it is, as a share
STEADY = 1e-6  # relative change of the rows at which their iteration ends

Speeds = Iterator[tuple[int, int, float, float]]
"""Drafters and targets of fleets, the tokens that each decodes in a second, and the time for a token."""


class Screened(msgspec.Struct, frozen=True):
    """What the equations say of a fleet.

    - `tokens_per_s`: all that it decodes; of arrivals, what they ask for.
    - `tpot_s`: time for a token of one request, on average; infinite where the load cannot be carried.
    """

    shape: FleetShape
    tokens_per_s: float
    tpot_s: float
    cost_per_hour: float

    @property
    def per_million(self) -> float:
        """What a million tokens cost."""
        return per_million_tokens(self.cost_per_hour, self.tokens_per_s)


def screen(question: Question) -> list[Screened]:
    """Screen all fleets of a question; a fleet that cannot carry its load has infinite times.

    Fleets that pairs of places have in common, without drafters apart, are among them once.
    """
    found: list[Screened] = []
    speeds = _serving if question.arrivals_per_s else _decoding
    families: set[Family] = set()
    for pair in question.pairs:
        kinds = [APART, PLAIN] if pair.colocated is None else [APART, COLOCATED, PLAIN]
        fleets = [(levers, kind) for kind in kinds for levers in pair.levers(kind, question.vary)]
        for levers, kind in fleets:
            if pair.family(kind) in families:
                continue
            _, target_place, draft_place = pair.family(kind)
            for drafters, targets, tokens_per_s, tpot_s in speeds(question, kind, resolve(pair.fleet(kind, levers))):
                shape = FleetShape(kind, drafters, targets, levers, target_place, draft_place)
                found.append(Screened(shape, tokens_per_s, tpot_s, pair.prices.per_hour(drafters, targets)))
        families |= {pair.family(kind) for _, kind in fleets}
    return found


def _counts_apart(question: Question) -> list[tuple[int, int]]:
    """Drafters and targets of fleets with drafters apart."""
    return [(M, N) for M in question.drafters for N in question.targets if M <= N]


def _decoding(question: Question, kind: Kind, fleet: Fleet) -> Speeds:
    """Fleets of targets that decode all the time: of those that draft for themselves, or not, the fewest for the goals.

    Each of the drafters apart has its share of the targets: a star of its own.
    """
    inputs, counts = star_inputs(fleet), _counts_apart(question)
    if kind != APART:
        rate = inputs.colocated_tokens_per_s if kind == COLOCATED else inputs.standalone_tokens_per_s
        if math.isinf(rate):
            return  # nothing says what a plain step takes
        prompt, new_tokens = mean_lengths(fleet.workload)
        steps = [fleet.verifier_times(0).prefill, *([fleet.drafter_times(0).prefill] if kind == COLOCATED else [])]
        tokens_per_s = 1 / (1 / rate + sum(step.mean_s(prompt) for step in steps) / new_tokens)
        for N in _fewest(question, tokens_per_s):
            yield 0, N, N * tokens_per_s, 1 / rate
    elif counts and inputs.service_s > 0:
        M, N = np.array(counts).T
        scv, return_scv = _variabilities(fleet, inputs)
        fewer, larger = N // M, N % M  # how many targets a drafter has, and how many drafters have one more
        S, Z = inputs.service_s, inputs.return_s
        fewer_rounds, more_rounds = (rounds_per_s(each, S, Z, scv, return_scv) for each in (fewer, fewer + 1))
        rounds = (M - larger) * fewer_rounds + larger * more_rounds
        tokens = rounds * (inputs.accepted_per_round + 1)
        yield from zip(M.tolist(), N.tolist(), tokens.tolist(), (N / tokens).tolist(), strict=True)


def _fewest(question: Question, tokens_per_s: float) -> list[int]:
    """Numbers of targets that may be the fewest to reach the goals of all tokens, if each decodes as many."""
    least = max((goal.limit for goal in question.goals if goal.metric == "throughput"), default=0.0) / tokens_per_s
    surely = min((N for N in question.targets if (1 + OFF) * least <= N), default=max(question.targets))
    return [N for N in question.targets if least <= N <= surely] or [surely]


def _variabilities(fleet: Fleet, inputs: StarInputs) -> tuple[float, float]:
    """Squared coefficients of variation of S and of Z."""
    Z, verify_s = inputs.return_s, inputs.verify_s
    spreads = fleet.drafter_times(0).draft.spread, fleet.verifier_times(0).verify.spread, fleet.link(0).time.spread
    quantiles = (np.arange(1000) + 0.5) / 1000  # of spreads with mean 1
    draft, verify, link = (float(spread.ratios(quantiles).var()) for spread in spreads)
    return draft, (verify * verify_s**2 + link * (Z - verify_s) ** 2) / Z**2 if Z > 0 else 0.0


def _serving(question: Question, kind: Kind, fleet: Fleet) -> Speeds:
    """Fleets for requests that come by themselves."""
    load = _Load(fleet, star_inputs(fleet), question.arrivals_per_s)
    if kind == APART:
        drafting_s = {M: load.drafting_s(M) for M in question.drafters}
        verifying_s = {N: load.verifying_s(N) for N in question.targets}
        for M, N in _counts_apart(question):
            round_s = drafting_s[M] + load.communication_s + verifying_s[N]
            yield M, N, load.tokens_per_s, round_s / load.tokens_per_round
    else:
        tpot_s = load.together_s if kind == COLOCATED else load.plain_s
        for N in question.targets:
            yield 0, N, load.tokens_per_s, tpot_s(N)


class _Load:
    """What requests that come `per_s` times a second ask of the stations of a fleet."""

    def __init__(self, fleet: Fleet, inputs: StarInputs, per_s: float) -> None:
        prompt, new_tokens = mean_lengths(fleet.workload)
        self.depth, self.context = fleet.drafters.depth, prompt + new_tokens / 2
        self.tokens_per_round = inputs.accepted_per_round + 1
        self.rounds_per_s = per_s * new_tokens / self.tokens_per_round
        self.tokens_per_s = per_s * new_tokens
        self.communication_s = inputs.return_s - inputs.verify_s
        self.drafter, self.target = fleet.drafter_times(0), fleet.verifier_times(0)
        self.nodes = fleet.drafters.shape.nodes(self.depth) + 1
        self.drafts_alone = isinstance(fleet.drafters.group, One)
        self.verifies_alone = fleet.verifiers.batching.max_num_seqs == 1
        self.draft_prefill_s = per_s * self.drafter.prefill.mean_s(prompt)
        self.prefill_s = per_s * self.target.prefill.mean_s(prompt)

    def drafting_s(self, M: int) -> float:
        """How long a round stays at one of M drafters."""
        return _stay_s(self.drafter.draft, self.depth, self.context, self.rounds_per_s / M, self.draft_prefill_s / M,
                       self.drafts_alone)  # fmt: skip

    def verifying_s(self, N: int) -> float:
        """The same at one of N targets."""
        return _stay_s(self.target.verify, self.nodes, self.context, self.rounds_per_s / N, self.prefill_s / N,
                       self.verifies_alone)  # fmt: skip

    def plain_s(self, N: int) -> float:
        """Time for a token where each of N targets decodes by itself, all its sessions at once.

        A session that decodes is in the next step, too, and does not wait for it.
        """
        return _stay_s(self.target.decode, 1, self.context, self.tokens_per_s / N, self.prefill_s / N,
                       self.verifies_alone, waits=self.verifies_alone)  # fmt: skip

    def together_s(self, N: int) -> float:
        """The same where each of N targets drafts for all of its rows, after each of its steps."""
        per_s, left = self.rounds_per_s / N, 1 - (self.draft_prefill_s + self.prefill_s) / N
        if left <= 0:
            return math.inf
        if self.verifies_alone:
            alone_s = self._round_s(1.0) / left
            busy = per_s * alone_s
            return alone_s / (1 - busy) / self.tokens_per_round if busy < 1 else math.inf
        return _settled_s(lambda rows: self._round_s(rows) / left, per_s) / self.tokens_per_round

    def _round_s(self, rows: float) -> float:
        """A draft and a verification of so many rows."""
        draft_s = _rows_s(self.drafter.draft, self.depth, self.context, rows)
        return draft_s + _rows_s(self.target.verify, self.nodes, self.context, rows)


def _stay_s(
    step: StepTime, tokens: float, context: float, per_s: float, prefill_share: float, alone: bool, waits: bool = True
) -> float:
    """How long work stays at a station to which `per_s` pieces come in a second.

    As many rows share a step as come while one runs; `waits`: whether they come at any time of it. Infinite where the
    station does not come after its work.
    """
    left = 1 - prefill_share
    if left <= 0:
        return math.inf
    single_s = step.mean_s(tokens, context) / left
    busy = per_s * single_s
    if alone:
        return single_s * (1 + busy / (2 * (1 - busy))) if busy < 1 else math.inf
    step_s = _settled_s(lambda rows: _rows_s(step, tokens, context, rows) / left, per_s)
    return step_s * (1 + min(busy, 1.0) / 2 * waits)


def _settled_s(time_s: Callable[[float], float], per_s: float) -> float:
    """Return the time of a step with as many rows as come in that time, one or more; infinite beyond MAX_ROWS."""
    rows, found_s = 1.0, 0.0
    for _ in range(MAX_TURNS):
        found_s = time_s(rows)
        newer = max(1.0, per_s * found_s)
        if newer > MAX_ROWS:
            return math.inf
        if abs(newer - rows) <= STEADY * rows:
            break
        rows = newer
    return found_s


def _rows_s(step: StepTime, tokens: float, context: float, rows: float) -> float:
    """Time of a step of a mean number of rows, between those of whole ones."""
    below = int(rows)
    times_s = [step.mean_s(tokens, context, each, (each - 1) * tokens) for each in (below, below + 1)]
    return times_s[0] + (rows - below) * (times_s[1] - times_s[0])
