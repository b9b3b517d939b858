"""Counts of rounds by what they drafted and accepted, as an acceptance model."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import mul

from specfleet.calibration.readers.recording import Counts
from specfleet.fleet.acceptance.models import Geometric, PerPosition, Recorded, rate_of_mean
from specfleet.fleet.errors import InputError

MAX_DEPTH = 4096  # tokens of a draft
Rounds = Counter[tuple[int, int]]  # how many rounds drafted and accepted so many tokens
Sessions = Sequence[Sequence[tuple[int, int]]]  # the rounds of each request in order: drafted, accepted


def rounds_of(drafted: int, histogram: Mapping[int, int] | Sequence[int]) -> Rounds:
    """Return the counts of rounds that all drafted the same, from how many accepted j tokens."""
    pairs = histogram.items() if isinstance(histogram, Mapping) else enumerate(histogram)
    return Counter({(drafted, accepted): count for accepted, count in pairs if count})


def steps_without_draft(origin: str, key: str, tokens: int, firsts: int, rounds: int, accepted: int, cut: int) -> int:
    """Return how many tokens came in steps without a draft, which an engine does not count as rounds.

    - `key`, `tokens`: the file's name of the tokens of all answers, and their number.
    - `firsts`: answers, whose first token comes from a prefill.
    - `cut` (tokens): the most that the ends of answers cut off their last rounds.

    Raises InputError where rounds have more tokens than answers.
    """
    counted = firsts + rounds + accepted
    if tokens < counted - cut:
        meaning = f"first tokens + rounds + accepted = {firsts} + {rounds} + {accepted}"
        raise InputError(f"{origin}: {key} = {tokens} contradicts {meaning}, of which ends of answers cut off {cut}")
    return max(tokens - counted, 0)


def plain_note(plain: int, steps: int) -> str:
    """Say how many of the steps had no draft."""
    share = f"{plain} of {steps} steps had no draft, by the answers' tokens"
    return f"{share}: they count as rounds that accept nothing, and take as long as those here"


def counts_of(
    origin: str, source: str, rounds: Rounds, plain: int = 0, stated: float | None = None, notes: tuple[str, ...] = ()
) -> Counts:
    """Return the counts of rounds; raises as `model_of`.

    - `source`: what they are.
    - `plain`: steps without a draft beside them, taken as rounds that accept nothing.
    """
    if plain:
        notes = (*notes, plain_note(plain, plain + rounds.total()))
        rounds = rounds + Counter({(max((drafted for drafted, _ in rounds), default=0), 0): plain})
    model, depth = model_of(rounds, origin)
    count, accepted = rounds.total(), sum(accepted * count for (_, accepted), count in rounds.items())
    return Counts(
        acceptance=model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        source=f"{count} {source}",
        stated=stated,
        notes=notes,
    )


def counts_of_survivors(
    origin: str, source: str, passed: Sequence[int], drafts: int, draft_tokens: int, stated: float | None, plain: int
) -> Counts:
    """Return the counts of drafts of which so many passed each position; raises as `model_of`.

    - `draft_tokens`: of all drafts. Where it shows short ones, a note says what that does to the shares.
    - `plain`: as in `counts_of`.
    """
    rounds = rounds_of(len(passed), [here - after for here, after in pairwise((drafts, *passed, 0))])
    note = (
        f"{drafts} drafts had {draft_tokens} tokens, and not {len(passed)} each: shares are of all drafts, so later "
        "places come out lower than full drafts would have them"
    )
    notes = (note,) if draft_tokens < drafts * len(passed) else ()
    return counts_of(origin, source, rounds, plain, stated, notes)


def model_of(rounds: Rounds, origin: str) -> tuple[PerPosition, int]:
    """Return the model that plays such rounds back, and the depth up to which it knows them.

    Where all drafts are of one length, it is the histogram; else the shares that pass each place, by the rates of the
    drafts that got there. Raises InputError where no round drafted a token.
    """
    drafting: Rounds = Counter({pair: count for pair, count in rounds.items() if pair[0] and count})
    if not drafting:
        raise InputError(f"{origin}: counts no round that drafted a token; needs one")
    lengths = {drafted for drafted, _ in drafting}
    if len(lengths) == 1:
        (depth,) = lengths
        return PerPosition(histogram=tuple(drafting.get((depth, j), 0) for j in range(depth + 1))), depth
    survival = tuple(accumulate(_rates(drafting, max(lengths)), mul))
    return PerPosition(survival=survival), len(survival)


def _rates(rounds: Rounds, deepest: int) -> Iterator[float]:
    """Yield the share accepted at each place of the drafts that got there (Kaplan and Meier's estimator); 0 after a
    place that none passed."""
    none_passed = False
    for place in range(1, deepest + 1):
        there = sum(count for (drafted, accepted), count in rounds.items() if min(drafted, accepted + 1) >= place)
        if not there and not none_passed:
            return
        passed = sum(count for (_, accepted), count in rounds.items() if accepted >= place)
        none_passed = not passed
        yield passed / there if there else 0.0


def recorded(sessions: Sessions, depth: int) -> Recorded | None:
    """Return the model that plays requests back round by round; None where a draft was not of that depth."""
    full = [[accepted for _, accepted in session] for session in sessions if session]
    alike = all(drafted == depth for session in sessions for drafted, _ in session)
    return Recorded(depth, tuple(map(tuple, full))) if alike and full else None


def counts_of_mean(
    origin: str, source: str, rounds: int, key: str, mean: float, depth: int, depth_key: str, is_stated: bool = False
) -> Counts:
    """Return the counts of rounds of so many tokens on average, bonus included, if every draft token passes as often.

    - `source`: what gives the mean.
    - `key`, `depth_key`: names of the mean and of the depth in the file.
    - `is_stated`: whether the file has the mean itself.

    InputError without a depth, and for a mean that it does not allow.
    """
    if not depth:
        raise InputError(f"{origin}: lacks {depth_key}, which a server writes first; state --depth")
    if depth > MAX_DEPTH or not 1 <= mean <= depth + 1:
        raise InputError(f"{origin}: {key} = {mean:.4g}, {depth_key} = {depth}; needs 1 to {depth + 1}")
    return Counts(
        acceptance=Geometric(rate_of_mean(mean, depth)),
        depth=depth,
        rounds=rounds,
        accepted=round(rounds * (mean - 1)),
        source=f"{source}; assumed: every draft token passes as often",
        stated=mean if is_stated else None,
    )
