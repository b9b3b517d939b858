"""What a round of a target costs by its rows and draft length, from the times of a profile: for goodput rules."""

from specfleet.fleet.policies.goodput import RoundCosts
from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.times.mixed import drafting_s, parts_of, pass_s, together_s
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import Member, Step


def round_costs(
    target: VerifierTimes, drafter: DrafterTimes, shape: Shape, most_rows: int, most_tokens: int, context: int
) -> RoundCosts:
    """Return the mean times of rounds up to so many rows, in powers of two, each with up to so many drafts.

    - `context`: committed tokens of each row.
    """
    rows = sorted({min(1 << power, most_rows) for power in range(most_rows.bit_length() + 1)})
    draft_s, verify_s = [], []
    for number in rows:
        steps = [_members(number, tokens, context) for tokens in range(most_tokens + 1)]
        draft_s.append(
            tuple(
                drafting_s(drafter, Step(1, "draft", members), [tokens] * number)
                for tokens, members in enumerate(steps)
            )
        )
        verify_s.append(tuple(_verify_s(target, shape, members) for members in steps))
    return RoundCosts(tuple(rows), tuple(draft_s), tuple(verify_s))


def _members(rows: int, tokens: int, context: int) -> tuple[Member, ...]:
    return tuple(Member(tag, 0, 0, context, tokens, tokens + 1) for tag in range(rows))


def _verify_s(target: VerifierTimes, shape: Shape, members: tuple[Member, ...]) -> float:
    """As `verifier_durations`: rows that draft nothing are a verification of one token, whatever a plain step takes."""
    step = Step(1, "verify", members)
    if len(members) > 1 and target.verify.roofline is not None:
        return pass_s(target, step, shape)
    return together_s(target.verify, parts_of(step, shape))
