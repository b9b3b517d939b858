"""SpecDecode-Bench's recordings of Llama-3.1-8B, as its two reproductions read them from the folder `--data`."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from calibrate.readers.specdecode_bench import Method, read_specdecode_bench
from experiments.reproduce.rows import Inputs
from fleet.chance.places import Text
from fleet.errors import InputError
from fleet.inputs.text import is_file

FILE = "specdecode-bench-llama31-8b-acceptance.parquet"
SETS = {"InstructCoder": "instructcoder", "ShareGPT": "sharegpt", "GSM8K": "gsm8k", "CNN": "cnn"}
METHODS: dict[str, Method] = {"n-gram": "ngram", "EAGLE-3": "eagle"}
# What the authors' simulator takes for the share of lookups that find something where nothing is accepted.
MATCHING = {"InstructCoder": 0.8, "ShareGPT": 0.2, "GSM8K": 0.2, "CNN": 0.4}


class Recorded(NamedTuple):
    """Texts of one set under one method, accepted tokens by place from 1 on, and the tokens of each prompt."""

    texts: Sequence[Text]
    prompts: Sequence[int]

    def only(self, numbers: Sequence[int]) -> "Recorded":
        """Return some of the texts."""
        return Recorded([self.texts[number] for number in numbers], [self.prompts[number] for number in numbers])


def recordings(inputs: Inputs, name: str) -> dict[tuple[str, str], Recorded]:
    """Read all sets and methods, by their names in the figures, for the reproduction `name`.

    Raises InputError where the folder or the file is missing, or the file contradicts its format.
    """
    if inputs.data is None:
        raise InputError(f"reproduce {name}: give --data FOLDER, which holds {FILE}")
    file = Path(inputs.data) / FILE
    if not is_file(file):
        raise InputError(f"--data {inputs.data}: has no {FILE}, which reproduce {name} reads")
    found = {}
    for title, dataset in SETS.items():
        for method, key in METHODS.items():
            read = read_specdecode_bench([file], key, dataset)
            found[title, method] = Recorded(read.texts, [prompt for prompt, _ in read.lengths])
        counts = [len(found[title, method].texts) for method in METHODS]
        if len(set(counts)) > 1:
            told = " and ".join(f"{count} of {method}" for count, method in zip(counts, METHODS, strict=True))
            raise InputError(
                f"{file}: {dataset} has {told}; needs as many answers of both, with a place after the prefill"
            )
    return found
