"""A serving target under load by equations: the time of a request with so many in flight, and the load that this is.

A request of O answer tokens takes O / E[tokens of a round] rounds, and waits for the prefills of all others meanwhile.
By Little's law a target with B requests in flight serves B / (time of a request) of them in a second. Equations are
approximate: they choose what is simulated.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfleet.fleet.acceptance.models import survival
from specfleet.fleet.scenario.facts import middle_context
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.times.step_time import StepTime

WORTH = 1.10  # twice the requests in flight must be served this much faster, or the device has no time left
MAX_ROWS = 4096
KNOTS_A_DOUBLING = 2

Floats = NDArray[np.float64]


class LoadCurve(NamedTuple):
    """A target by requests in flight.

    - `rows`: numbers of requests in flight, up to the first limit of its rows; `request_s`: time of a request with so
      many, its prefill included.
    - `full`: requests in flight at which each resource is exhausted, the first one first.
    """

    rows: Floats
    request_s: Floats
    full: dict[str, float]

    @property
    def per_s(self) -> Floats:
        """Requests served in a second with so many in flight; rises."""
        rates: Floats = np.maximum.accumulate(self.rows / self.request_s)
        return rates

    def request_at(self, per_s: float) -> float:
        """Time of a request at a load, by Little's law; infinite for a load that the target cannot carry."""
        if per_s > self.per_s[-1]:
            return math.inf
        return float(np.interp(per_s, [0.0, *self.per_s], [0.0, *self.rows])) / per_s

    def request_with(self, in_flight: float) -> float:
        """Time of a request with so many in flight; those beyond the last row wait for their turn."""
        last = float(self.rows[-1])
        time_s = float(np.interp(in_flight, self.rows, self.request_s))
        return time_s * max(1.0, in_flight / last)

    def load_of(self, resource: str) -> float:
        """Requests a second at which a resource is exhausted."""
        return float(np.interp(min(self.full[resource], self.rows[-1]), self.rows, self.per_s))


def load_curve(fleet: Fleet, depth: int, targets: int = 1) -> LoadCurve:
    """Return the curve of a target at a depth; `targets`: how many share a drafter elsewhere."""
    full = _row_limits(fleet, depth)
    most = max(int(min(*full.values(), MAX_ROWS)), 1)
    knots = range(int(KNOTS_A_DOUBLING * math.log2(2 * most)) + 1)
    rows = np.array(sorted({round(2 ** (knot / KNOTS_A_DOUBLING)) for knot in knots} | {most, 2 * most}))
    times_s = np.array([request_s(fleet, int(each), depth, targets) for each in rows])
    per_s = rows / times_s
    twice = np.interp(2 * rows, rows, per_s)
    idle = (twice >= WORTH * per_s) & (2 * rows <= rows[-1])
    full["the devices' time"] = float(rows[np.argmin(idle)]) if not idle[rows <= most].all() else math.inf
    if fleet.verifiers.drafts is None and depth:
        behind = [each for each in rows if targets * _draft_s(fleet, each, depth) > _alone_s(fleet, each, depth)]
        full["the drafters' time"] = float(behind[0]) if behind else math.inf
    carried = rows <= most
    ordered = dict(sorted(full.items(), key=lambda one: one[1]))
    return LoadCurve(rows[carried].astype(float), times_s[carried], ordered)


def request_s(fleet: Fleet, rows: int, depth: int, targets: int = 1) -> float:
    """Time of a request's decoding: its rounds, and the prefills of all others meanwhile."""
    _, answer = mean_lengths(fleet.workload)
    rounds, others = answer / tokens_per_round(fleet, depth), (rows - 1) * (depth + 1)
    prefill_s = _prefill_s(fleet, fleet.verifier_times(0).prefill, others)
    if depth and fleet.verifiers.drafts is not None and fleet.verifiers.drafts.reads_prompts:
        prefill_s += _prefill_s(fleet, fleet.drafter_times(0).prefill, others)
    return rounds * round_s(fleet, rows, depth, targets) + rows * prefill_s


def _prefill_s(fleet: Fleet, prefill: StepTime, others: int) -> float:
    """Time that a prompt adds to steps of so many other tokens, with which it shares the reading of weights."""
    prompt, _ = mean_lengths(fleet.workload)
    alone_s = prefill.mean_s(prompt) - prefill.base_s
    if prefill.roofline is None or not others:
        return alone_s
    products_s = prefill.roofline.products_s
    return alone_s - products_s(prompt) + products_s(others + prompt) - products_s(others)


def tokens_per_round(fleet: Fleet, depth: int) -> float:
    """Mean tokens that a round adds: accepted drafts, and the target's own."""
    return 1 + float(survival(fleet.length_model(), depth).sum()) if depth else 1.0


def round_s(fleet: Fleet, rows: int, depth: int, targets: int = 1) -> float:
    """Time of a draft and its verification with that many rows in both; at depth 0, of a plain step.

    A drafter elsewhere that has several targets drafts for one after the other. Several rows are not in step there, and
    wait for half a step of the drafter, and for half a step of their target.
    """
    context = middle_context(fleet)
    if not depth:
        return fleet.verifier_times(0).decode.mean_s(1, context, rows, rows - 1)
    alone_s = _alone_s(fleet, rows, depth)
    if fleet.verifiers.drafts is not None:
        return alone_s
    waits_s = (alone_s - 2 * _way_s(fleet, depth)) / 2 if rows > 1 else 0.0
    return max(alone_s + waits_s, targets * _draft_s(fleet, rows, depth))


def drafter_share(fleet: Fleet, rows: int, depth: int) -> float:
    """Share of a round for which a drafter elsewhere drafts for one target; 0 for drafts without time."""
    return _draft_s(fleet, rows, depth) / _alone_s(fleet, rows, depth)


def _alone_s(fleet: Fleet, rows: int, depth: int) -> float:
    verify_s = fleet.verifier_times(0).verify.mean_s(depth + 1, middle_context(fleet), rows, (depth + 1) * (rows - 1))
    ways_s = 2 * _way_s(fleet, depth) if fleet.verifiers.drafts is None else 0.0
    return _draft_s(fleet, rows, depth) + verify_s + ways_s


def _way_s(fleet: Fleet, depth: int) -> float:
    return fleet.link(0).time.mean_s(4 * depth)


def _draft_s(fleet: Fleet, rows: int, depth: int) -> float:
    return fleet.drafter_times(0).draft.mean_s(depth, middle_context(fleet), rows, depth * (rows - 1))


def _row_limits(fleet: Fleet, depth: int) -> dict[str, float]:
    """Return the requests in flight at which each limit of a target's rows is reached."""
    batching = fleet.verifiers.batching
    room = batching.kv_blocks * batching.block_size
    return {
        "the KV cache": room / (middle_context(fleet) + batching.lookahead) if room else math.inf,
        "max_num_seqs": float(batching.max_num_seqs),
        "max_num_batched_tokens": batching.max_num_batched_tokens / (1 + depth + batching.slots),
    }
