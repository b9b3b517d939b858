"""Large fleets for the study `scale`: the places that are assumed, their scenarios, and what equations say of them."""

import math
from typing import Any, NamedTuple

import msgspec

from fleet.hardware.passes import Placed
from fleet.hardware.profile import estimated_profile, placed_of
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.times.step_time import StepTime
from sim.approximate import rounds_per_s
from sim.predict import StarInputs, star_inputs

TARGETS_OF_DRAFTER = 10
DEPTH, BETA = 3, 0.8
PROMPT_TOKENS, NEW_TOKENS = 128, 64
IN_TURN, IN_GROUPS = "in turn", "in groups"
BITS = 8
MEMORY_SHARE = 0.9  # of a device that caches and weights may take
CONTEXT = PROMPT_TOKENS + NEW_TOKENS / 2
HALF = 0.5  # of the rate of a request that has a drafter alone: below that, a drafter that serves in groups is full
STEADY = 1e-9
MOST_TARGETS = 1 << 12


class Place(msgspec.Struct, frozen=True):
    """Where targets and drafters stand.

    Keys:
        name: What the place is called.
        target: MODEL@DEVICE of the targets.
        draft: MODEL@DEVICE of the drafters.
        latency_s: Mean one-way latency.
        spread: Spread of the latency around its mean.
        access_bytes_per_s: Bandwidth of a target's own link.
        port_bytes_per_s: Bandwidth of a drafter's port, which all of its targets share.
        news_s: Age of a router's news of the drafters.
        temperature: Temperature of the requests.
    """

    name: str
    target: str
    draft: str
    latency_s: float
    spread: str
    access_bytes_per_s: float
    port_bytes_per_s: float
    news_s: float
    temperature: float = 0.0

    def placed(self) -> tuple[Placed, Placed]:
        """Return target and drafter, each on its devices."""
        return placed_of(self.target), placed_of(self.draft)


RACK = Place(
    "rack", "llama-3.1-70b@4xh100", "llama-3.2-1b@h100", latency_s=20e-6, spread="constant",
    access_bytes_per_s=100e9 / BITS, port_bytes_per_s=100e9 / BITS, news_s=20e-6,
)  # fmt: skip
REGION = Place(
    "region", "llama-3.1-70b@4xh100", "llama-3.2-1b@h100", latency_s=2e-3, spread="exponential",
    access_bytes_per_s=10e9 / BITS, port_bytes_per_s=10e9 / BITS, news_s=2e-3,
)  # fmt: skip
EDGE = Place(
    "edge", "llama-3.1-8b@jetson-orin:int4", "llama-3.2-1b@rtx-4090", latency_s=20e-3, spread="exponential",
    access_bytes_per_s=20e6 / BITS, port_bytes_per_s=10e9 / BITS, news_s=2e-3,
)  # fmt: skip
SAMPLING = msgspec.structs.replace(EDGE, name="edge, sampling", temperature=1.0)
PLACES = {place.name: place for place in (RACK, REGION, EDGE, SAMPLING)}


def fleet_of(
    place: Place, drafters: int, mode: str = IN_TURN, requests_of_target: int = 1, route: dict[str, Any] | None = None
) -> Scenario:
    """Return the scenario of TARGETS_OF_DRAFTER targets for each drafter, which decode all the time.

    Args:
        place: Where they stand.
        drafters: Number of drafters.
        mode: IN_TURN if a drafter serves one session at a time, IN_GROUPS if all that wait share a step.
        requests_of_target: Requests of each target.
        route: Keys of a router; left out, a target keeps its drafter.
    """
    targets = TARGETS_OF_DRAFTER * drafters
    return make_scenario(
        {
            "name": place.name,
            "profile": msgspec.to_builtins(estimated_profile(*place.placed())),
            "link": {
                "latency_s": place.latency_s, "bandwidth_bytes_per_s": place.access_bytes_per_s, "spread": place.spread,
            },
            "drafters": {
                "count": drafters, "depth": DEPTH, "group": "one" if mode == IN_TURN else "batch", **(route or {}),
            },
            "verifiers": {"count": targets},
            "acceptance": {"model": "geometric", "beta": BETA},
            "workload": {
                "requests": targets * requests_of_target, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS,
                "temperature": place.temperature,
            },
        }
    )  # fmt: skip


class Star(NamedTuple):
    """One drafter of a place with its targets, by equations: means of its rounds, and the step time of a draft."""

    inputs: StarInputs
    draft: StepTime

    def rounds_per_s(self, targets: int, mode: str) -> float:
        """Return rounds a second of one drafter with so many targets."""
        if mode == IN_TURN:
            return float(rounds_per_s(targets, self.inputs.service_s, self.inputs.return_s))
        return self._grouped(targets)

    def tokens_per_s(self, targets: int, mode: str) -> float:
        """Return tokens a second of one drafter with so many targets."""
        return self.rounds_per_s(targets, mode) * (self.inputs.accepted_per_round + 1)

    def carries(self, mode: str) -> float:
        """Return how many targets a drafter carries.

        In turn, until it is busy all the time: 1 + Z / S. In groups it only gets slower: until a request has HALF the
        rate that it had alone; infinite beyond MOST_TARGETS.
        """
        if mode == IN_TURN:
            return 1 + self.inputs.return_s / self.inputs.service_s
        alone, low, high = self._grouped(1), 1, 2
        while high <= MOST_TARGETS and self._grouped(high) / high >= HALF * alone:
            low, high = high, 2 * high
        if high > MOST_TARGETS:
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._grouped(middle) / middle >= HALF * alone else (low, middle)
        return low

    def _grouped(self, targets: int) -> float:
        """Return rounds a second where all that wait share a step; the next one starts when half a step has passed."""
        rows, busy = 1.0, 0.0
        for _ in range(1000):
            step_s = self._draft_s(rows)
            rate = targets / (self.inputs.return_s + step_s * (1 + busy / 2))
            newer = max(1.0, rate * step_s)
            busy = min(1.0, rate * step_s / newer)
            if abs(newer - rows) <= STEADY * rows:
                break
            rows = (rows + newer) / 2
        return rate

    def _draft_s(self, rows: float) -> float:
        """Return the time of a draft of a mean number of rows, between those of whole ones."""
        below = int(rows)
        times_s = [self.draft.mean_s(DEPTH, CONTEXT, each, (each - 1) * DEPTH) for each in (below, below + 1)]
        return times_s[0] + (rows - below) * (times_s[1] - times_s[0])


def star_of(place: Place) -> Star:
    """Return what the equations know of a place."""
    fleet = resolve(fleet_of(place, 1))
    return Star(star_inputs(fleet), fleet.drafter_times(0).draft)


def sessions_in_memory(place: Place) -> float:
    """Return how many sessions of the longest text fit into a drafter's memory."""
    _, drafter = place.placed()
    free_bytes = MEMORY_SHARE * drafter.device.memory_bytes.value - drafter.weights_bytes
    return free_bytes / drafter.shape.cache_bytes_per_token() / (PROMPT_TOKENS + NEW_TOKENS)
