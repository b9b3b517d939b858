"""Times of batches of identical rows: copies of one request run in lockstep, so one walk over its text is enough.

A benchmark that submits one prompt B times decodes such batches. `simulate` gives the same times row by row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

Floats = NDArray[np.float64]


class Walks(NamedTuple):
    """Rounds of several requests in a row, one entry per round.

    Args:
        request: Number of the request, from 0.
        context: Committed tokens before the round, the prompt included.
        accepted: Accepted draft tokens, at most the depth.
        prompts: Prompt tokens of each request.
        answers: Output tokens of each request.
    """

    request: NDArray[np.int64]
    context: Floats
    accepted: Floats
    prompts: Floats
    answers: Floats

    def of_requests(self, values: Floats) -> Floats:
        """Sum values of rounds over each request."""
        return np.bincount(self.request, weights=values, minlength=len(self.prompts)).astype(np.float64)


def walks_of(texts: Sequence[Sequence[int]], prompts: Sequence[int], depth: int) -> Walks:
    """Walk over each text from the place after its prefill to its end; a round ends with a token of the target's own.

    Args:
        texts: Draft tokens that a draft begun at place 1, 2, ... would have accepted. The prefill adds one token.
        prompts: Prompt tokens of each text.
        depth: Draft tokens per round; 0 is plain decoding.
    """
    request, context, accepted = [], [], []
    for number, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
        place = 0
        while place < len(text):
            length = min(text[place], depth)
            request.append(number)
            context.append(prompt + 1 + place)
            accepted.append(length)
            place += length + 1
    answers = [len(text) + 1 for text in texts]
    floats = (np.array(values, dtype=np.float64) for values in (context, accepted, prompts, answers))
    return Walks(np.array(request, dtype=np.int64), *floats)


def rounds_s(profile: HardwareProfile, context: Floats, drafted: Floats, rows: int) -> Floats:
    """Return the mean time in seconds of each round, without overhead between steps.

    Args:
        profile: Step times.
        context: Committed tokens before each round.
        drafted: Draft tokens of each row. It may be a mean over the rows if times are linear in tokens.
        rows: Rows of the batch.
    """
    drafting_s = steps_s(profile.draft, drafted, context, rows)
    return drafting_s + steps_s(profile.verify, drafted + 1, context, rows)


def prefills_s(profile: HardwareProfile, prompts: Floats, rows: int) -> Floats:
    """Return the mean time in seconds of prefilling `rows` copies of each prompt, at the target and at the drafter."""
    none = np.zeros_like(prompts)
    of_target_s = steps_s(profile.verify_prefill, prompts, none, rows)
    return of_target_s + steps_s(profile.draft_prefill, prompts, none, rows)


def steps_s(time: StepTime, tokens: Floats, context: Floats, rows: int) -> Floats:
    """Return the mean time in seconds of each step of `rows` identical rows with these tokens and contexts."""
    means_s = np.empty(len(context))
    for count in np.unique(tokens):  # a roofline takes one number of tokens
        alike = tokens == count
        means_s[alike] = time.mean_s(float(count), context[alike], rows, count * (rows - 1))
    return means_s
