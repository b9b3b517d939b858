"""Acceptance models: how many draft tokens pass verification, as a mean, a distribution, and random draws.

A round drafts `depth` tokens. Its acceptance length l, from 0 to depth, is the number of leading tokens that the
target accepts. The target adds one token: the correction after a mismatch, else the bonus token.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, pairwise, repeat
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specfleet.fleet.acceptance.sources import uniform_blocks
from specfleet.fleet.errors import InputError

Probability = Annotated[float, Meta(ge=0, le=1)]
Shape = Annotated[float, Meta(gt=0, le=1e12)]  # beyond this a + b, Beta(a, b) equals one beta to all digits
Rounds = Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]

COUNTED_DEPTH = 16  # up to this depth, counting is faster than searching
HALVINGS = 60  # of the interval from 0 to 1, to the last digit
FIRST_BLOCK = DECK = 64  # numbers in a request's first block, and requests that share a draw of first blocks


class Geometric(msgspec.Struct, frozen=True, tag="geometric", tag_field="model", forbid_unknown_fields=True):
    """Every draft token is accepted with the same probability, independently (StarSD, equation 3).

    Keys:
        beta (share): `beta`, the acceptance probability of a draft token, given that all before it were accepted.
    """

    beta: Probability


class BetaGeometric(msgspec.Struct, frozen=True, tag="beta-geometric", tag_field="model", forbid_unknown_fields=True):
    """Geometric, with beta drawn from Beta(a, b) for each round.

    Text has easy and hard passages, so acceptance lengths spread more than one beta allows. Without a and b, those
    apply that fit the profile's recorded acceptance best: `acceptance = "beta-geometric"`.

    Keys:
        a (1): First parameter of the beta distribution; the mean of beta is a / (a + b).
        b (1): Second parameter of the beta distribution.
    """

    a: Shape | None = None
    b: Shape | None = None

    def __post_init__(self) -> None:
        if (self.a is None) != (self.b is None):
            raise ValueError("needs both a and b, or neither, for a fit to the profile's")


class PerPosition(
    msgspec.Struct, frozen=True, tag="per-position", tag_field="model", forbid_unknown_fields=True, omit_defaults=True
):
    """Each position of a draft has its own acceptance probability.

    One of both keys is set, as engines print them. Drafts deeper than the last position are refused; shorter drafts
    ignore further positions.

    Keys:
        survival (share): `survival[j-1]` is the share of all drafts with tokens 1 to j accepted: non-increasing
            and at most 1. This is vLLM's "Per-position acceptance rate". The mean acceptance length is 1 + their sum,
            the bonus token included.
        histogram (rounds): `histogram[j]` is the number of rounds that accepted j draft tokens, from j = 0 to the
            depth of all drafts; zeros are included.
    """

    survival: Annotated[tuple[Probability, ...], Meta(min_length=1)] | None = None
    histogram: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=2)] | None = None

    def __post_init__(self) -> None:
        given = [key for key in self.__struct_fields__ if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"needs survival or histogram; given: {', '.join(given) or 'none'}")
        if self.survival is not None:
            for j, (before, here) in enumerate(pairwise(self.survival), start=1):
                if here > before:
                    raise ValueError(
                        f"survival[{j}] = {here} is above survival[{j - 1}] = {before}; allowed: shares of all drafts, "
                        "which cannot rise"
                    )
        if self.histogram is not None and not any(self.histogram):
            raise ValueError(f"histogram = {list(self.histogram)} counts no round; allowed: a sum above 0")

    def reached(self) -> NDArray[np.float64]:
        """Return P(l >= j) for j = 1 to the last known position."""
        if self.survival is not None:
            return np.array(self.survival, dtype=np.float64)
        rounds = np.array(self.histogram, dtype=np.float64)
        reached: NDArray[np.float64] = rounds[::-1].cumsum()[::-1][1:] / rounds.sum()
        return reached


class Recorded(
    msgspec.Struct, frozen=True, tag="recorded", tag_field="model", forbid_unknown_fields=True, omit_defaults=True
):
    """Measured acceptance lengths, round by round, of each recorded session.

    At a smaller depth the rounds are walked anew over the recorded text, since shorter drafts begin at other places of
    it, and more often where drafts are good. What the token after a whole draft would have been is not recorded; it is
    drawn by the rate at the last position. Larger depths are refused.

    Keys:
        depth (tokens): The depth of all recorded drafts. Where a rule grants a length for each round, the walk is that
            of the longest, and a shorter draft cuts its rounds: it accepts less than by a walk of
            its own if good drafts come in runs.
        sessions (tokens): For each session, the accepted draft tokens of its rounds in order, each from 0 to `depth`.
        drafted (tokens): What prompt lookup found for each of these rounds, from 0 to `depth`; it alone plays that.
            Without it each round has a whole draft. Beside `drafters.first`, 0 is a round of the model or head.
    """

    depth: Annotated[int, Meta(ge=1)]
    sessions: Annotated[tuple[Rounds, ...], Meta(min_length=1)]
    drafted: tuple[Rounds, ...] = ()

    def __post_init__(self) -> None:
        for number, session in enumerate(self.sessions):
            longest = max(session)
            if longest > self.depth:
                raise ValueError(f"sessions[{number}] holds {longest}; allowed: 0 to depth = {self.depth}")
        if self.drafted and [*map(len, self.drafted)] != [*map(len, self.sessions)]:
            raise ValueError("drafted needs a number for each round of sessions")
        for found, accepted in zip(chain(*self.drafted), chain(*self.sessions), strict=False):
            if not accepted <= (found or self.depth) <= self.depth:
                raise ValueError(f"drafted holds {found} beside {accepted} accepted; allowed: up to {self.depth}")

    def at(self, depth: int) -> tuple[tuple[Rounds, ...], tuple[Rounds, ...]]:
        """Return the rounds of each session with drafts of that depth, at most the recorded one, and `drafted` then."""
        return (self.sessions, self.drafted) if depth == self.depth else _walked_anew(self, depth)


@lru_cache(maxsize=16)
def _walked_anew(model: Recorded, depth: int) -> tuple[tuple[Rounds, ...], tuple[Rounds, ...]]:
    lengths = np.concatenate(model.sessions)
    whole, rng = lengths >= model.depth, np.random.default_rng(depth)
    rate = whole.sum() / max((lengths >= model.depth - 1).sum(), 1)
    walked, found = list[Rounds](), list[Rounds]()
    for session, drafted in zip(model.sessions, model.drafted or repeat(()), strict=False):
        agrees: list[bool] = []  # whether the draft has the text's token, place by place
        left: list[int] = []  # how long a draft from there is; the match of one that is cut short ends with it
        for length, tokens in zip(session, drafted or repeat(model.depth), strict=False):
            agrees += [True] * length
            agrees.append(length == model.depth and bool(rng.random() < rate))
            left += [depth if tokens == model.depth else min(tokens - place, depth) for place in range(length + 1)]
        rounds, place = list[tuple[int, int]](), 0
        while place < len(agrees):
            draft = agrees[place : place + left[place]]
            accepted = draft.index(False) if False in draft else len(draft)
            if accepted == len(draft) < left[place] and rounds:
                break  # the recording ends within this draft
            rounds.append((accepted, left[place]))
            place += accepted + 1
        for kept, values in zip((walked, found), zip(*rounds, strict=True), strict=True):
            kept.append(values)
    return tuple(walked), tuple(found) if model.drafted else ()


class Found(msgspec.Struct, frozen=True, tag="found", tag_field="model", forbid_unknown_fields=True):
    """Drafts that are found in texts, as by suffix decoding: in a share of rounds, with lengths by a stated law.

    Lengths are geometric from `least` on, cut at the longest draft. Rounds do not depend on each other.

    Keys:
        share (share): Rounds with a draft that is found, of all.
        mean (tokens): Mean length of these drafts, before the cut.
        beta (share): Acceptance probability of their tokens.
        least (tokens): The shortest of them. Beside `drafters.first` its `least`.
        head: Acceptance of the rounds without one, which the model or head drafts (`drafters.first`). Left out, they
            draft nothing.
    """

    share: Probability
    mean: Annotated[float, Meta(ge=1, le=1e6)]
    beta: Probability
    least: Annotated[int, Meta(ge=1, le=4096)] = 1
    head: Geometric | PerPosition | None = None

    def __post_init__(self) -> None:
        if self.mean < self.least:
            raise ValueError(f"mean = {self.mean:g} is below least = {self.least}")

    def chances(self, depth: int) -> NDArray[np.float64]:
        """Return for j = 1 .. `depth`: P(at least j are found), P(j pass if found), P(j pass if the head drafts)."""
        j = np.arange(1, depth + 1)
        longer = np.power(1 - 1 / (self.mean - self.least + 1), np.maximum(j - self.least, 0))
        of_head = survival(self.head, min(self.least, depth)) if self.head else np.zeros(0)
        return np.array([self.share * longer, np.power(self.beta, j), np.pad(of_head, (0, depth - len(of_head)))])

    def rounds(self, depth: int, root: int, request: int) -> Iterator[tuple["Lengths", "Lengths"]]:
        """Yield found and accepted tokens of a request's rounds, block by block; 0 are found where the head drafts."""
        rng, chances = np.random.default_rng([root, request]), self.chances(depth)
        while True:
            lengths, passing = rng.random((2, FIRST_BLOCK, 1))
            longer, passes, of_head = lengths < chances[0], passing < chances[1], passing < chances[2]
            accepted = np.where(longer[:, 0], (longer & passes).sum(1), of_head.sum(1))
            yield longer.sum(1).astype(np.int16), accepted.astype(np.int16)


AcceptanceModel = Geometric | BetaGeometric | PerPosition | Recorded | Found


def needs_fit(model: object) -> bool:
    """Return whether a model is a bare name, whose numbers are to be fitted to a profile's record."""
    return isinstance(model, BetaGeometric) and model.a is None


def survival(model: AcceptanceModel, depth: int) -> NDArray[np.float64]:
    """P(l >= j) for j = 1 .. depth; shape (depth,).

    It is the product of the conditional rates P(l >= j | l >= j - 1); shares of all rounds are returned unchanged.
    Raises InputError for a depth beyond the model's.
    """
    check_depth(model, depth)
    match model:
        case Geometric(beta):
            rates = np.full(depth, beta, dtype=np.float64)
        case BetaGeometric(a, b):
            assert a is not None
            assert b is not None  # `resolve` has fitted them
            earlier = np.arange(depth)
            rates = (a + earlier) / (a + b + earlier)  # mean of beta, given that many successes
        case PerPosition():
            return model.reached()[:depth]
        case Recorded():
            lengths = np.concatenate(model.at(depth)[0])
            return np.array([np.mean(lengths >= j) for j in range(1, depth + 1)], dtype=np.float64)
        case Found(share):
            longer, passes, of_head = model.chances(depth)
            return np.asarray(longer * passes + (1 - share) * of_head, dtype=np.float64)
    return rates.cumprod()


def pmf(model: AcceptanceModel, depth: int) -> NDArray[np.float64]:
    """P(l = k) for k = 0 .. depth; shape (depth + 1,). Raises as `survival` does."""
    return -np.diff(survival(model, depth), prepend=1.0, append=0.0)


def expected_accepted(model: AcceptanceModel, depth: int) -> float:
    """Mean accepted draft tokens a round, E[l(d)], as the sum of its tail (StarSD, lemma 3.1, equation 2)."""
    return float(survival(model, depth).sum())


def expected_committed(model: AcceptanceModel, depth: int) -> float:
    """Mean tokens that a round adds to the text: accepted tokens and the target's own."""
    return expected_accepted(model, depth) + 1


def committed_closed_form(beta: float, depth: int) -> float:
    """Mean accepted tokens and the target's own, (1 - beta^(d+1)) / (1 - beta); d + 1 at beta = 1.

    Without the target's own this is StarSD's equation (3), beta (1 - beta^d) / (1 - beta).
    """
    if beta == 1:
        return float(depth + 1)
    power = -math.expm1((depth + 1) * math.log(beta)) if beta > 0 else 1.0  # without cancellation near beta = 1
    return power / (1 - beta)


def rate_of_mean(tokens: float, depth: int) -> float:
    """Return the constant rate by which a round of so many draft tokens adds 1 to depth + 1 tokens, the target's own
    included: the inverse of `committed_closed_form`."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if committed_closed_form(middle, depth) < tokens else (low, middle)
    return high


class Sampler:
    """Draws the acceptance lengths of a run's sessions; a request's lengths do not depend on the order of draws.

    Each request has its own random numbers and its own place in a recording. Runs with the same seed therefore accept
    the same lengths for all fleets, rules and worlds.

    - `blocks(request)`: the lengths of its rounds in order, without end, as arrays.
    - `deck(number)`: the first block of each of so many requests, shape (DECK, FIRST_BLOCK); None if requests do not
      share draws.
    - `drafted(request)`: what is found, as `blocks`; None where each round has a whole draft.
    """

    def __init__(self, model: AcceptanceModel, depth: int, rng: np.random.Generator) -> None:
        check_depth(model, depth)
        self.depth = depth
        root = int(rng.integers(1 << 62))
        self.blocks, self.deck, self.drafted = _blocks_of(model, depth, root)
        self._lengths: dict[int, Iterator[int]] = {}
        self._finds: dict[int, Iterator[int]] = {}
        self.found: dict[int, int] = {}  # tokens that prompt lookup has for each session's next round, if recorded

    def begin_session(self, tag: int, request: int) -> None:
        """Start the session of a request; it replaces an earlier session with this tag."""
        self._lengths[tag] = chain.from_iterable(block.tolist() for block in self.blocks(request))
        if self.drafted:
            self._finds[tag] = chain.from_iterable(block.tolist() for block in self.drafted(request))
            self.found[tag] = next(self._finds[tag])

    def draw(self, tag: int, drafted: int) -> int:
        """Return the acceptance length of this session's next round, with `drafted` tokens of at most `depth`.

        A shorter draft truncates the length. That is exact for every model but `Recorded`; see there.
        """
        assert drafted <= self.depth
        length = next(self._lengths[tag])
        if self.drafted:
            self.found[tag] = next(self._finds[tag])
        return length if length < drafted else drafted


Lengths = NDArray[np.int16]  # accepted tokens of rounds, at most the maximum depth
Blocks = Callable[[int], Iterator[Lengths]]


def _blocks_of(
    model: AcceptanceModel, depth: int, root: int
) -> tuple[Blocks, Callable[[int], Lengths] | None, Blocks | None]:
    """Return the functions `blocks`, `deck` and `drafted` of a sampler."""
    if isinstance(model, Recorded):
        rounds, drafted = model.at(depth)
        return _blocks_of_rounds(rounds, root), None, _blocks_of_rounds(drafted, root) if drafted else None
    if isinstance(model, Found):
        return (
            lambda request: (accepted for _, accepted in model.rounds(depth, root, request)), None,
            lambda request: (found for found, _ in model.rounds(depth, root, request)),
        )  # fmt: skip

    reaching = survival(model, depth)

    def lengths(uniforms: NDArray[np.float64]) -> Lengths:
        # l = #{j: P(l >= j) > u}, a position in the survival table. Searching needs ascending values, hence the sign.
        if depth > COUNTED_DEPTH:
            return (-reaching).searchsorted(-uniforms).astype(np.int16)
        counted: Lengths = np.zeros(uniforms.shape, dtype=np.int16)
        for share in reaching:
            counted += share > uniforms
        return counted

    @lru_cache(maxsize=1024)  # as many as the concurrent requests of a large fleet
    def first_blocks(deck: int) -> Lengths:
        return lengths(np.random.default_rng([root, deck, 2]).random((DECK, FIRST_BLOCK)))

    def session_of_deck(request: int) -> Iterator[Lengths]:
        # Most sessions are short: creating a generator for each costs more than its numbers.
        deck, card = divmod(request, DECK)
        yield first_blocks(deck)[card]
        for block in uniform_blocks(np.random.default_rng([root, request]), 8 * FIRST_BLOCK):
            yield lengths(block)

    return session_of_deck, first_blocks, None


def _blocks_of_rounds(rounds: tuple[Rounds, ...], root: int) -> Blocks:
    """Return the function `blocks` for recorded rounds: whatever was recorded of a session, its order is the same.

    Each session begins a request once before any repeats, so that whole rounds have the recorded mean. Further ones
    are drawn at random, and whole: that keeps the dependence between rounds.
    """
    sessions = [np.array(session, np.int16) for session in rounds]

    @lru_cache(maxsize=4)
    def shuffled(deck: int) -> list[int]:
        return np.random.default_rng([root, deck, 1]).permutation(len(sessions)).tolist()  # type: ignore[no-any-return]

    def played_back(request: int) -> Iterator[Lengths]:
        deck, card = divmod(request, len(sessions))
        yield sessions[shuffled(deck)[card]]
        rng = np.random.default_rng([root, request])
        while True:
            yield sessions[rng.integers(len(sessions))]

    return played_back


def deepest(model: object) -> float:
    """Return the depth up to which a model of acceptance knows it; infinite without an end, or without a model."""
    match model:
        case PerPosition():
            return len(model.reached())
        case Recorded(recorded):
            return recorded
    return math.inf


def check_depth(model: AcceptanceModel, depth: int) -> None:
    """Raise InputError for a depth beyond the model's."""
    pairs = zip(chain(*model.sessions), chain(*model.drafted), strict=False) if isinstance(model, Recorded) else ()
    if depth < deepest(model) and any(accepted and not found for accepted, found in pairs):
        raise InputError(
            f"acceptance: drafted has rounds of a head; its rounds hold for depth = {deepest(model)} alone"
        )
    if depth <= deepest(model):
        return
    known = f"the recorded depth = {deepest(model)}"
    if isinstance(model, PerPosition):
        known = next(f"{key} = {list(values)}" for key, values in msgspec.structs.asdict(model).items() if values)
    recorded = int(deepest(model))
    rate = rate_of_mean(expected_committed(model, recorded), recorded)
    further = f"--set 'acceptance={{model=\"geometric\",beta={rate:.3g}}}' extrapolates at a constant rate"
    raise InputError(f"acceptance: depth = {depth} goes beyond {known}; allowed: up to {recorded}; {further}")
