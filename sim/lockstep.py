"""Batches of identical rows: copies of one request run in lockstep, so one walk over its text is the run of the batch.

A benchmark that submits one prompt B times decodes such batches. `simulate` plays them row by row and comes to the same
times; here each round is priced once, for all rows and any number of requests.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleet.acceptance.places import walk
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime

Floats = NDArray[np.float64]


class Walks(NamedTuple):
    """Rounds of several requests, one after the other, one entry a round.

    `request`: which request, from 0. `context`: committed tokens before the round, the prompt included. `accepted`:
    draft tokens that pass, up to the depth. `prompts` and `answers`: tokens of each request.
    """

    request: NDArray[np.int64]
    context: Floats
    accepted: Floats
    prompts: Floats
    answers: Floats

    def of_requests(self, values: Floats) -> Floats:
        """Add up a value a round over the rounds of each request."""
        return np.bincount(self.request, weights=values, minlength=len(self.prompts)).astype(np.float64)


def walks_of(texts: Sequence[Sequence[int]], prompts: Sequence[int], depth: int) -> Walks:
    """Walk over each text at a depth, from the place after its prefill to its end; depth 0 is plain decoding.

    A text has the accepted draft tokens of its places, as in a file of places; its answer is one token longer, which
    the prefill gives.
    """
    request, context, accepted = [], [], []
    for number, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
        place = 0
        for length in walk(text, depth):
            request.append(number)
            context.append(prompt + 1 + place)
            accepted.append(length)
            place += length + 1
    answers = [len(text) + 1 for text in texts]
    floats = (np.array(values, dtype=np.float64) for values in (context, accepted, prompts, answers))
    return Walks(np.array(request, dtype=np.int64), *floats)


def rounds_s(profile: HardwareProfile, context: Floats, drafted: Floats, rows: int) -> Floats:
    """Return the mean time in seconds of each round of `rows` rows that all draft so many tokens.

    Steps alone: what passes between them has to be in them. Where times are linear in tokens, `drafted` may be a mean
    over rows of which some draft nothing.
    """
    drafting_s = steps_s(profile.draft, drafted, context, rows)
    return drafting_s + steps_s(profile.verify, drafted + 1, context, rows)


def prefills_s(profile: HardwareProfile, prompts: Floats, rows: int) -> Floats:
    """Return the mean time in seconds of prefilling `rows` copies of each prompt in one step, target and drafter.

    The drafter's own prefill feeds the prompt without the token that the target's has given.
    """
    none = np.zeros_like(prompts)
    of_target_s = steps_s(profile.verify_prefill, prompts, none, rows)
    return of_target_s + steps_s(profile.draft_prefill, prompts, none, rows)


def steps_s(time: StepTime, tokens: Floats, context: Floats, rows: int) -> Floats:
    """Return the mean time in seconds of each step of `rows` identical rows, by tokens and context of one row."""
    means_s = np.empty(len(context))
    for each in np.unique(tokens):  # a roofline knows one number of tokens at a time
        alike = tokens == each
        means_s[alike] = time.mean_s(float(each), context[alike], rows, each * (rows - 1))
    return means_s
