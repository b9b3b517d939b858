"""SpecDecode-Bench's recordings: at each place of a greedy answer, the tokens that a step with 20 drafts would emit.

Entries count the target's own token: from 1 to 21, where 21 says "as many or more". Entry 0 is the prefill's, always 1;
entry c belongs to an answer of which c tokens are there. The files are the authors' (JSON Lines, with `acc_eagle` and
`acc_ngram`, a file a dataset), or one Parquet file of all datasets with lengths in place of token ids.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from specfleet.calibration.readers.entries import entries_of, table_of
from specfleet.calibration.readers.laws import at_most, same
from specfleet.fleet.acceptance.places import Text, walk
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.parquet import read_table
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import shortened

Method = Literal["eagle", "ngram"]
DRAFTED = 20  # tokens of each recorded draft
DEPTH = 5  # at which rounds are counted, by default
COLUMNS = {"eagle": "acc_len_eagle3", "ngram": "acc_len_ngram"}
LONGEST = 10**7  # tokens of a text: no model reads more

Entries = list[Annotated[int, Meta(ge=1, le=DRAFTED + 1)]]


class MethodAcceptance(msgspec.Struct, frozen=True):
    """What one method yields at each place."""

    acc_len: Entries


class BenchLine(msgspec.Struct, frozen=True):
    """A line of the authors' files, as far as it is read."""

    prompt_token_ids: list[int]
    generated_token_ids: list[int]
    acc_eagle: MethodAcceptance
    acc_ngram: MethodAcceptance


class RecordedPlaces(msgspec.Struct, frozen=True):
    """Accepted tokens at each place of the texts, and the lengths of their prompts and answers, in tokens.

    - `rounds`, `accepted`: of a walk over the texts at the depth that was asked for.
    """

    texts: tuple[Text, ...]
    lengths: tuple[tuple[int, int], ...]
    rounds: int
    accepted: int


BenchAnswer = tuple[str, int, int, list[int]]
"""One answer: name for errors, tokens of its prompt and of itself, and its entries."""


def read_specdecode_bench(
    files: Sequence[Path], method: Method = "eagle", dataset: str = "", depth: int = DEPTH
) -> RecordedPlaces:
    """Read recordings of one method; `dataset` picks one of a Parquet file, which holds several.

    `depth`: at which rounds are counted, in tokens, up to DRAFTED.

    Raises InputError, naming file, answer, key and both values, where an answer contradicts the format.
    """
    names = ", ".join(map(str, files))
    if method not in COLUMNS:
        raise InputError(f"--method {shortened(method, quoted=False)}: unknown; allowed: {', '.join(COLUMNS)}")
    if not 1 <= depth <= DRAFTED:
        raise InputError(f"{names}: depth = {depth}; allowed: 1 to {DRAFTED}, the tokens of each recorded draft")
    answers = [answer for path in files for answer in _answers(path, method, dataset)]
    texts, lengths = [], []
    for origin, prompt_tokens, answer_tokens, entries in answers:
        key = COLUMNS[method]
        if not entries or prompt_tokens < 1:
            raise InputError(
                f"{origin}: has {prompt_tokens} prompt tokens and {len(entries)} entries of {key}; needs both"
            )
        same(origin, f"{key}[0]", entries[0], "what a prefill emits", 1)
        if method == "ngram":
            same(origin, f"len({key})", len(entries), "the tokens of the answer", answer_tokens)
        for place, entry in enumerate(entries):
            if not 1 <= entry <= DRAFTED + 1:
                raise InputError(f"{origin}: {key}[{place}] = {entry}; allowed: 1 to {DRAFTED + 1}")
        at_most(origin, "its prompt's tokens", prompt_tokens, "the longest text", LONGEST)
        if len(entries) > 1:  # else the prefill has given all there is
            texts.append(tuple(entry - 1 for entry in entries[1:]))
            lengths.append((prompt_tokens, len(entries)))
    if not texts:
        raise InputError(f"{names}: holds no answer with a place after its prefill")
    walked = [accepted for text in texts for accepted in walk(text, depth)]
    return RecordedPlaces(tuple(texts), tuple(lengths), len(walked), sum(walked))


def _answers(path: Path, method: Method, dataset: str) -> Iterator[BenchAnswer]:
    if path.suffix == ".parquet":
        yield from _stored(path, method, dataset)
        return
    if dataset:
        raise InputError(f"{path}: --dataset {dataset} picks from a Parquet file; a file of JSON Lines is one dataset")
    for origin, entry in entries_of([path]):
        answer = convert(table_of(entry, origin), BenchLine, origin)
        entries = (answer.acc_eagle if method == "eagle" else answer.acc_ngram).acc_len
        yield origin, len(answer.prompt_token_ids), len(answer.generated_token_ids), list(entries)


def _stored(path: Path, method: Method, dataset: str) -> Iterator[BenchAnswer]:
    schema = pa.schema(
        {
            "dataset": pa.string(), "id": pa.string(), "prompt_tokens": pa.int64(), "generated_tokens": pa.int64(),
            COLUMNS[method]: pa.list_(pa.int64()),
        }
    )  # fmt: skip
    rows = read_table(path, schema).to_pylist()
    datasets = sorted({row["dataset"] for row in rows})
    if dataset and dataset not in datasets:
        raise InputError(f"{path}: --dataset {dataset} is not in it; allowed: {', '.join(datasets)}")
    for row in rows:
        if dataset in ("", row["dataset"]):
            origin = f"{path}, {row['dataset']} {row['id']}"
            yield origin, row["prompt_tokens"], row["generated_tokens"], row[COLUMNS[method]]
