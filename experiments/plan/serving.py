"""A target under load by equations: the time of a request with so many in flight, and the load that this is.

A request of O answer tokens takes O / E[tokens of a round] rounds, and waits for the prefills of all others meanwhile.
By Little's law a target with B requests in flight serves B / (time of a request) of them in a second. A target with one
request at a time and a drafter elsewhere is a star: its rounds are those of StarSD's equations, or of approximate mean
value analysis where times vary. Equations are approximate: they choose what is simulated.
"""

import math
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from specfleet.fleet.acceptance.models import survival
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import known_share, mean_lengths
from specfleet.fleet.stations.star import StarInputs, star_inputs
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.approximate import rounds_per_s

WORTH = 1.10  # twice the requests in flight must be served this much faster, or the device has no time left
TIME = "the devices' time"
MAX_ROWS = 4096
FULL = 0.99  # load of prefill servers that count as full
KNOTS_A_DOUBLING = 2

Floats = NDArray[np.float64]


class LoadCurve(NamedTuple):
    """A target by requests in flight.

    - `rows`: numbers of requests in flight, up to the first limit of its rows; `request_s`: time of a request with so
      many at its target, its prefill included; `outside_s`: what it takes beside that. `think_s`: of users, before it.
    - `full`: requests in flight at which each resource is exhausted, the first one first.
    """

    rows: Floats
    request_s: Floats
    full: dict[str, float]
    outside_s: float
    think_s: float = 0.0

    @property
    def per_s(self) -> Floats:
        """Requests served in a second with so many in flight; rises."""
        rates: Floats = np.maximum.accumulate(self.rows / self.request_s)
        return rates

    @property
    def capacity_per_s(self) -> float:
        """The most requests that are served in a second."""
        return float(self.per_s[-1])

    def request_at(self, per_s: float) -> float:
        """Time of a request at a load, by Little's law; infinite for a load that the target cannot carry."""
        if per_s > self.capacity_per_s:
            return math.inf
        return float(np.interp(per_s, [0.0, *self.per_s], [0.0, *self.rows])) / per_s + self.outside_s

    def request_with(self, in_flight: float) -> float:
        """Time of a request with so many in flight, those of users who think included; others wait for their turn."""
        all_s = self.request_s + self.outside_s
        at_once = self.per_s * (all_s + self.think_s)
        waits_s = max(in_flight / self.capacity_per_s - self.think_s - float(all_s[-1]), 0.0)
        return float(np.interp(in_flight, at_once, all_s)) + waits_s

    def at_target(self, in_flight: float) -> float:
        """Requests at the target of so many in flight: without users who think."""
        request_s = self.request_with(in_flight)
        return in_flight * request_s / (request_s + self.think_s)

    def load_of(self, resource: str) -> float:
        """Requests a second at which a resource is exhausted."""
        return float(np.interp(min(self.full[resource], self.rows[-1]), self.rows, self.per_s))


def load_curve(fleet: Fleet, targets: int = 1) -> LoadCurve:
    """Return the curve of a target with its prefill servers, if any; `targets`: how many share a drafter elsewhere."""
    curve, prefill = curve_of_target(Rounds(fleet), targets), fleet.verifiers.prefill
    return behind_prefill(curve, fleet, prefill.count / fleet.verifiers.count) if prefill else curve


def curve_of_target(rounds: "Rounds", targets: int = 1) -> LoadCurve:
    """Return the curve of a target alone, which computes prompts unless prefill servers do."""
    fleet, full = rounds.fleet, row_limits(rounds.fleet)
    most = max(int(min(*full.values(), MAX_ROWS)), 1)
    knots = range(int(KNOTS_A_DOUBLING * math.log2(2 * most)) + 1)
    rows = np.array(sorted({round(2 ** (knot / KNOTS_A_DOUBLING)) for knot in knots} | {most, 2 * most}))
    times_s = np.array([rounds.request_s(int(count), targets) for count in rows])
    per_s = rows / times_s
    twice = np.interp(2 * rows, rows, per_s)
    idle = (twice >= WORTH * per_s) & (2 * rows <= rows[-1])
    full[TIME] = float(rows[np.argmin(idle)]) if not idle[rows <= most].all() else math.inf
    if rounds.is_apart and isinstance(fleet.drafters.group, One):
        behind = [count for count in rows if targets * rounds.draft_s(int(count)) > rounds.alone_s(int(count))]
        full["the drafters' time"] = float(behind[0]) if behind else math.inf
    carried = rows <= most
    ordered = dict(sorted(full.items(), key=lambda item: item[1]))
    talks = fleet.workload.conversations
    think_s = talks.think_s * (1 - 1 / talks.mean_turns()) if talks else 0.0  # none before a first turn
    return LoadCurve(rows[carried].astype(float), times_s[carried], ordered, fleet.request_s, think_s)


def behind_prefill(curve: LoadCurve, fleet: Fleet, servers: float) -> LoadCurve:
    """Return the curve of a decode server with so many prefill servers, where prompts wait as in M/D/1."""
    prefill = fleet.verifiers.prefill
    assert prefill
    prompt_s = Rounds(fleet).prompt_s()
    sent_s = prefill.sent_s(fleet.lengths.mean_prompt * fleet.verifiers.kv_token_bytes, 0.0, prompt_s, -math.inf)
    most = int(np.searchsorted(curve.per_s * prompt_s, servers)) + 1  # the last one is where prefill servers are full
    per_s = np.minimum(curve.per_s[:most], FULL * servers / prompt_s)
    load = per_s * prompt_s / servers
    before_s = prompt_s * (1 + load / (1 - load) / 2) + sent_s + prefill.link.latency_s
    rows = curve.rows[:most] + per_s * before_s
    full = curve.full | ({"the prefill servers": float(rows[-1])} if most <= len(curve.rows) else {})
    ordered = dict(sorted(full.items(), key=lambda item: item[1]))
    return LoadCurve(rows, rows / per_s, ordered, curve.outside_s)


class Rounds:
    """Rounds of a target by the requests that share its steps, each of whose times grows with their number."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.context = fleet, fleet.lengths.middle
        self.prompt, self.answer = _computed_tokens(fleet), fleet.lengths.mean_answer
        self.drafts = fleet.drafters.count > 0 or fleet.verifiers.drafts is not None
        local = fleet.verifiers.drafts
        self.is_apart, self.reads_prompts = self.drafts and local is None, local is not None and local.reads_prompts
        self.depth = fleet.drafters.depth if self.drafts else 0
        self.star = star_inputs(fleet) if self.drafts else StarInputs(0.0, 0.0, 0.0, 0.0, 0.0)
        self.beside_s = self.star.return_s - self.star.verify_s if self.is_apart else 0.0  # the link, and overhead
        self.tokens = 1 + self.star.accepted_per_round  # that a round adds on average
        self.verified = fleet.drafters.shape.nodes(self.depth) + 1 if self.drafts else 1
        decodes = self.is_apart and fleet.verifiers.late == "decode" and self._plain(1) > 0
        self.reached = np.cumsum([0, *survival(fleet.length_model(), self.depth)]) if decodes else None
        # Each is asked for every number of targets of a drafter.
        self.draft_s, self._verify_s, self._plain_s = map(cache, (self._draft, self._verify, self._plain))
        self.variabilities = self._variabilities() if self.is_apart else (0.0, 0.0)

    def request_s(self, rows: int, targets: int = 1) -> float:
        """Time of a request's decoding: its rounds, and the prefills of all others meanwhile."""
        others, prefill = (rows - 1) * self.verified, self.fleet.verifiers.prefill
        prefill_s = 0.0 if prefill else self._prefill_s(self.fleet.verifier_times(0).prefill, others)
        if self.reads_prompts and not (prefill and prefill.draft_cache == "sent"):
            prefill_s += self._prefill_s(self.fleet.drafter_times(0).prefill, others)
        return self.answer * self.token_s(rows, targets) + rows * prefill_s

    def token_s(self, rows: int, targets: int = 1) -> float:
        """Time of a round over its tokens. A target that decodes meanwhile has tokens that the draft has, too."""
        round_s = self.round_s(rows, targets)
        if self.reached is None:
            return round_s / self.tokens
        step_s, verify_s = self._plain_s(rows), self._verify_s(rows)
        steps = (round_s - verify_s) / step_s
        steps = math.ceil(steps) if rows == 1 else steps  # several are not in step
        decoded = steps - np.interp(steps, np.arange(self.depth + 1), self.reached)
        left = max(1 - steps / self.depth, 0.0)  # of the draft, to verify
        return float(((steps + 1) * step_s + left * (verify_s - step_s)) / (self.tokens + decoded))

    def prompt_s(self) -> float:
        """Time of a prompt at a prefill server."""
        prefill, target_s = self.fleet.verifiers.prefill, self._prefill_s(self.fleet.verifier_times(0).prefill, 0)
        reads = self.reads_prompts and prefill and (prefill.draft_cache == "sent" or prefill.first_round_drafts)
        return target_s + (self._prefill_s(self.fleet.drafter_times(0).prefill, 0) if reads else 0.0)

    def round_s(self, rows: int, targets: int = 1) -> float:
        """Time of a draft and its verification with that many rows in both; without drafts, of a plain step.

        A drafter elsewhere drafts for its targets in turn: a star. Several rows wait for half a step of each there.
        """
        if not self.drafts:
            return self._plain_s(rows)
        if not self.is_apart:
            return self.alone_s(rows)
        S, Z = self.draft_s(rows), self.beside_s + self._verify_s(rows)
        waits_s = (S + self._verify_s(rows)) / 2 if rows > 1 else 0.0
        star_s = targets / float(rounds_per_s(targets, S, Z, *self.variabilities)) if S > 0 else Z
        return max(S + Z + waits_s, star_s)

    def alone_s(self, rows: int) -> float:
        """Time of a round without waits."""
        return self.draft_s(rows) + self.beside_s + self._verify_s(rows)

    def _draft(self, rows: int) -> float:
        """Time of a draft of so many rows: S of the equations, and what further rows add."""
        return self.star.service_s + _more_s(self.fleet.drafter_times(0).draft, self.depth, self.context, rows)

    def _plain(self, rows: int) -> float:
        return self.fleet.verifier_times(0).decode.mean_s(1, self.context, rows, rows - 1)

    def _verify(self, rows: int) -> float:
        return self.star.verify_s + _more_s(self.fleet.verifier_times(0).verify, self.verified, self.context, rows)

    def _variabilities(self) -> tuple[float, float]:
        """Squared coefficients of variation of S and of Z."""
        fleet, Z, verify_s = self.fleet, self.star.return_s, self.star.verify_s
        spreads = fleet.drafter_times(0).draft.spread, fleet.verifier_times(0).verify.spread, fleet.link(0).time.spread
        quantiles = (np.arange(1000) + 0.5) / 1000  # of spreads with mean 1
        draft, verify, link = (float(spread.ratios(quantiles).var()) for spread in spreads)
        return draft, (verify * verify_s**2 + link * (Z - verify_s) ** 2) / Z**2 if Z > 0 else 0.0

    def _prefill_s(self, prefill: StepTime, others: int) -> float:
        """Time that a prompt adds to steps of so many other tokens, with which it shares the reading of weights."""
        if not others:
            return prefill.mean_s(self.prompt)
        alone_s = prefill.mean_s(self.prompt) - prefill.base_s
        if prefill.roofline is None:
            return alone_s
        products_s = prefill.roofline.products_s
        return alone_s - products_s(self.prompt) + products_s(others + self.prompt) - products_s(others)


def _more_s(step: StepTime, tokens: int, context: float, rows: int) -> float:
    """Time that further rows, of as many tokens each, add to a step of one."""
    return step.mean_s(tokens, context, rows, tokens * (rows - 1)) - step.mean_s(tokens, context)


def _computed_tokens(fleet: Fleet) -> float:
    """Return the tokens of a mean prompt that a target computes; its prefix cache has what came before, but for the
    last block's half and the blocks that a head needs."""
    prompt, verifiers = fleet.lengths.mean_prompt, fleet.verifiers
    if not verifiers.prefix_cache:
        return prompt
    shared = fleet.workload.shared
    its_own, _ = mean_lengths(msgspec.structs.replace(fleet.workload, shared=None, conversations=None))
    its_own *= (1 - (shared.share if shared else 0.0)) * (1 - known_share(fleet.workload))
    blocks = 0.5 + (verifiers.drafts.again if verifiers.drafts else 0)
    return min(prompt, its_own + blocks * verifiers.batching.block_size)


def row_limits(fleet: Fleet) -> dict[str, float]:
    """Return the requests in flight at which each limit of a target's rows is reached."""
    batching = fleet.verifiers.batching
    depth = fleet.drafters.depth if fleet.drafters.count or fleet.verifiers.drafts is not None else 0
    room, row = batching.kv_blocks * batching.block_size, fleet.lengths.middle + batching.lookahead
    numbers = np.geomspace(1, max(room, 1), 99)  # requests of a token each are the most
    held = [held_tokens(fleet, float(number), row) for number in numbers]
    return {
        "the KV cache": float(np.interp(room, held, numbers)) if room else math.inf,
        "max_num_seqs": float(batching.max_num_seqs),
        "max_num_batched_tokens": batching.max_num_batched_tokens / (1 + depth + batching.slots),
    }


def held_tokens(fleet: Fleet, requests: float, tokens: float) -> float:
    """Return the tokens that the KV cache has of so many running requests of so many tokens: what they share once."""
    shared = fleet.workload.shared
    if not fleet.verifiers.prefix_cache or not shared:
        return requests * tokens
    beginning = shared.beginning(fleet.lengths.mean_prompt)
    return requests * (tokens - beginning) + shared.distinct(requests) * beginning
