"""SpecDecode-Bench's recordings: at each place of a greedy answer, the tokens that a step with 20 drafts would emit.

Entries count the target's own token: from 1 to 21, where 21 says "as many or more". Entry 0 is the prefill's, always 1;
entry c belongs to an answer of which c tokens are there. The file (Parquet) has all data sets of the authors' JSON
Lines, with lengths in place of token ids.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from specfleet.experiments.reproduce.rows import Paper
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.parquet import read_table

FILE = "specdecode-bench-llama31-8b-acceptance.parquet"
PAPER = Paper("specdecode", Path(__file__).parent)
TARGET_S, EAGLE_S = PAPER["simulator"]["target_s"], PAPER["simulator"]["eagle_s"]
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
