"""SpecDecode-Bench's recordings: at each place of a greedy answer, the tokens that a step with 20 drafts would emit.

Entries count the target's own token: from 1 to 21, where 21 says "as many or more". Entry 0 is the prefill's, always 1;
entry c belongs to an answer of which c tokens are there. The file (Parquet) has all data sets of the authors' JSON
Lines, with lengths in place of token ids.

A benchmark that submits one prompt B times decodes batches of identical rows. Copies of one request run in lockstep, so
one walk over its text gives their times. `simulate` gives the same times row by row.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specfleet.experiments.reproduce.rows import Paper
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.parquet import read_table
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

FILE = "specdecode-bench-llama31-8b-acceptance.parquet"
PAPER = Paper("specdecode", Path(__file__).parent)
TARGET_S, EAGLE_S = PAPER["simulator"]["target_s"], PAPER["simulator"]["eagle_s"]
EAGLE_DEPTH = 3  # of the draft that EAGLE_S times
FIGURE_10 = {
    (name, method, depth): speed_ups
    for name, methods in PAPER["figure_10"].items()
    for method, by_depth in methods.items()
    for depth, speed_ups in by_depth.items()
}
"""Speed-ups at BATCHES by set, drafter and depth."""
BATCHES = (1, 8, 16, 32, 64, 128)
RECORDED = 20  # tokens of each recorded draft
SETS = {"InstructCoder": "instructcoder", "ShareGPT": "sharegpt", "GSM8K": "gsm8k", "CNN": "cnn"}
METHODS = {"n-gram": "acc_len_ngram", "EAGLE-3": "acc_len_eagle3"}
"""Columns of entries by drafter."""
SCHEMA = pa.schema(
    {"dataset": pa.string(), "prompt_tokens": pa.int64(), "generated_tokens": pa.int64()}
    | dict.fromkeys(METHODS.values(), pa.list_(pa.int64()))
)


class RecordedTexts(NamedTuple):
    """Texts of one set under one method, accepted tokens by place from 1 on, and the tokens of each prompt."""

    texts: Sequence[tuple[int, ...]]
    prompts: Sequence[int]

    def only(self, numbers: Sequence[int]) -> "RecordedTexts":
        """Return some of the texts."""
        return RecordedTexts([self.texts[number] for number in numbers], [self.prompts[number] for number in numbers])


Recordings = dict[tuple[str, str], RecordedTexts]
"""By set and drafter, by their names in the figures."""


def read_recordings(file: Path) -> Recordings:
    """Read all sets and methods; InputError where the file contradicts its format."""
    rows, recordings = read_table(file, SCHEMA).to_pylist(), {}
    for title, dataset in SETS.items():
        of_set = [row for row in rows if row["dataset"] == dataset]
        for method, column in METHODS.items():
            for row in of_set:
                _check(row[column], f"{file}, {dataset}, {column}")
                if method == "n-gram" and len(row[column]) != row["generated_tokens"]:
                    raise InputError(f"{file}, {dataset}: {len(row[column])} entries of {column} for another length")
            longer = [row for row in of_set if len(row[column]) > 1]  # else the prefill has given all there is
            texts = [tuple(entry - 1 for entry in row[column][1:]) for row in longer]
            recordings[title, method] = RecordedTexts(texts, [row["prompt_tokens"] for row in longer])
        counts = {len(recordings[title, method].texts) for method in METHODS}
        if len(counts) > 1 or 0 in counts:
            raise InputError(
                f"{file}: {dataset} needs as many answers of both drafters, with a place after the prefill"
            )
    return recordings


def _check(entries: Sequence[int], origin: str) -> None:
    if not entries or entries[0] != 1 or not all(1 <= entry <= RECORDED + 1 for entry in entries):
        raise InputError(f"{origin}: an answer whose entries do not begin with 1, or are not from 1 to {RECORDED + 1}")


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
        drafted: Draft tokens of each row.
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
