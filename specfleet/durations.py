"""How long steps take, drawn from a profile: for the simulator, and for replayed targets that only wait.

Random numbers come in blocks: an event loop cannot afford a numpy call a number.
"""

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np

from specfleet.profile import Constant, LinkTime, Spread, StepTime
from specfleet.scenario import Scenario, decode_time, prefill_time, profile_of, turns_of, verify_time
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


def step_name(drafting: bool, kind: str) -> str:
    """Name that a profile gives to a station's steps of `kind`: the two prefills are told apart."""
    if kind == "prefill":
        return "draft_prefill" if drafting else "verify_prefill"
    return kind


def grid_place(kind: str, tokens: int, base: int) -> tuple[int, int]:
    """Tokens fed and context: what the time of a step over `tokens` tokens at committed length `base` depends on.

    d draft tokens are verified by feeding d + 1; a plain decoding step feeds one; a prefill has no context.
    """
    match kind:
        case "verify":
            return tokens + 1, base
        case "decode":
            return 1, base
        case "prefill":
            return tokens, 0
        case _:
            return tokens, base


def draft_durations(
    scenario: Scenario, rng: np.random.Generator, paced: bool = False
) -> Callable[[Step, float], float]:
    """Return the function that draws S(d) and the drafter's other steps, from the step and its device's recent load.

    Drafts are slower after an idle gap (section 5.3), or on a device that was little used of late; where stations take
    turns, their slowdown by each other holds instead. `paced`: the host's pace is played back, so its mean at a load is
    left out.
    """
    profile, turns = profile_of(scenario), turns_of(scenario, scenario.drafters.device)
    slowdowns = turns.slowdowns if turns else {}
    draft_s = step_durations(profile.draft.slowed(slowdowns.get("draft", 1.0)), rng)
    prefill_s = step_durations(profile.draft_prefill.slowed(slowdowns.get("draft_prefill", 1.0)), rng)
    slowdown, by_load = profile.idle.slowdown, None if turns else profile.recent_load

    def duration_s(step: Step, recent_load: float) -> float:
        member = step.members[0]
        place = grid_place(step.kind, member.tokens, member.base)
        if step.kind == "prefill":
            return prefill_s(*place)
        cold = slowdown(step.idle_gap_s, step.warm_tokens)
        if by_load is not None:
            cold *= by_load.slowdown(recent_load) * (1.0 if paced else by_load.pace(recent_load))
        return cold * draft_s(*place)

    return duration_s


def verifier_durations(scenario: Scenario, target: int, rng: np.random.Generator) -> Callable[[Step, float], float]:
    """Return the function that draws the times of a verifier's steps."""
    turns = turns_of(scenario, scenario.verifiers.device)
    slowdowns = turns.slowdowns if turns else {}
    times = {
        "verify": verify_time(scenario, target),
        "prefill": prefill_time(scenario),
        "decode": decode_time(scenario),
    }
    draws = {
        kind: step_durations(time.slowed(slowdowns.get(step_name(drafting=False, kind=kind), 1.0)), rng)
        for kind, time in times.items()
    }

    def duration_s(step: Step, recent_load: float) -> float:  # noqa: ARG001  (one signature for all stations)
        member = step.members[0]
        return draws[step.kind](*grid_place(step.kind, member.tokens, member.base))

    return duration_s
