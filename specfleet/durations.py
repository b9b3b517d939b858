"""How long steps take, drawn from a profile: for the simulator, and for replayed targets that only wait.

Random numbers come in blocks: an event loop cannot afford a numpy call a number.
"""

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np

from specfleet.profile import Constant, HardwareProfile, LinkTime, Spread, StepTime
from specfleet.scenario import Scenario, decode_time, prefill_time, verify_time
from specfleet.station import Step

BLOCK = 4096


def ratios(spread: Spread, rng: np.random.Generator) -> Iterator[float]:
    """Yield independent multipliers of a mean time, for ever."""
    return repeat(1.0) if isinstance(spread, Constant) else _blocks(spread, rng)


def _blocks(spread: Spread, rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from spread.ratios(rng.random(BLOCK)).tolist()


def one_way_s(link: LinkTime, rng: np.random.Generator) -> Callable[[int], float]:
    """Return the function that draws the one-way time in seconds of a payload in bytes."""
    latency_s, s_per_byte = link.latency_s, link.s_per_byte
    jitter = ratios(link.spread, rng)
    return lambda payload: latency_s * next(jitter) + payload * s_per_byte


def step_durations(time: StepTime, rng: np.random.Generator) -> Callable[[int, int], float]:
    """Return the function that draws the time in seconds of a step over (tokens, context)."""
    spread = ratios(time.spread, rng)
    a, b, c, e = time.base_s, time.per_token_s, time.per_context_token_s, time.per_token_context_s
    return lambda tokens, context: (a + b * tokens + (c + e * tokens) * context) * next(spread)


def draft_durations(
    profile: HardwareProfile, rng: np.random.Generator, paced: bool = False
) -> Callable[[Step, float], float]:
    """Return the function that draws S(d) and the drafter's other steps, from the step and its device's recent load.

    Drafts are slower after an idle gap (section 5.3), or on a device that was little used of late. `paced`: the host's
    pace is played back, so its mean at a load is left out.
    """
    draft_s = step_durations(profile.draft, rng)
    prefill_s = step_durations(profile.draft_prefill, rng)
    slowdown, by_load = profile.idle.slowdown, profile.recent_load

    def duration_s(step: Step, recent_load: float) -> float:
        member = step.members[0]
        if step.kind == "prefill":
            return prefill_s(member.tokens, 0)
        cold = slowdown(step.idle_gap_s, step.warm_tokens)
        if by_load is not None:
            cold *= by_load.slowdown(recent_load) * (1.0 if paced else by_load.pace(recent_load))
        return cold * draft_s(member.tokens, member.base)

    return duration_s


def verifier_durations(scenario: Scenario, target: int, rng: np.random.Generator) -> Callable[[Step, float], float]:
    """Return the function that draws the times of a verifier's steps; d draft tokens are verified by feeding d + 1."""
    verify_s = step_durations(verify_time(scenario, target), rng)
    prefill_s = step_durations(prefill_time(scenario), rng)
    decode_s = step_durations(decode_time(scenario), rng)

    def duration_s(step: Step, recent_load: float) -> float:  # noqa: ARG001  (one signature for all stations)
        member = step.members[0]
        if step.kind == "verify":
            return verify_s(member.tokens + 1, member.base)
        if step.kind == "prefill":
            return prefill_s(member.tokens, 0)
        return decode_s(1, member.base)

    return duration_s
