"""Real records with one line damaged, a thousand times: refused, read as before, or read with a note of doubt.

vLLM 0.32 (two scrapes around 48 requests, drafts of 4) and llama.cpp's server wrote them on a cpu.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from specfleet.calibration.readers.llama_cpp import read_llama_cpp_log
from specfleet.calibration.readers.llama_cpp_metrics import read_llama_cpp_metrics
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.vllm_metrics import read_vllm_metrics
from specfleet.fleet.errors import InputError
from tests.helpers.readings import LLAMA_CPP

DATA = Path(__file__).parent / "data"
LOG = (DATA / "llama-cpp.log").read_text()
BEFORE, AFTER = ((DATA / f"vllm-{name}.txt").read_text() for name in ("before", "after"))
STEPS = (1, 7, 50)
DAMAGES: dict[str, Callable[[str, float, float], str]] = {
    "more": lambda name, value, step: f"{name} {value + step}",
    "fewer": lambda name, value, step: f"{name} {max(value - step, 0)}",
    "none": lambda name, _value, _step: f"{name} 0",
    "negative": lambda name, value, _step: f"{name} -{value + 1}",
    "huge": lambda name, _value, _step: f"{name} 1e300",
    "not a number": lambda name, _value, _step: f"{name} NaN",
    "a word": lambda name, _value, _step: f"{name} many",
    "missing": lambda *_: "",
    "twice": lambda name, value, _step: f"{name} {value}\n{name} {value}",
}


DOUBTS = ("shares are of all drafts", "steps had no draft", "answers had no draft", "ends of the log")


def read_or_none(read: Callable[[Sequence[Path]], Recording], files: Sequence[Path]) -> Recording | None:
    """Return the recording; None where it is refused."""
    try:
        return read(files)
    except InputError:
        return None


def damaged(text: str, seed: int) -> str:
    """Return the text with one of its samples damaged; of a log, with a number changed or a line lost."""
    rng, lines = random.Random(seed), text.splitlines()
    if text is LOG:
        place = rng.randrange(len(lines))
        head, _, said = lines[place].rpartition("|")
        number = rng.choice(list(re.finditer(r"\d+(\.\d+)?", said)))
        other = rng.choice(["0", "-1", "NaN", f"{float(number[0]) + rng.choice(STEPS):g}", "1e300", ""])
        lines[place] = f"{head}|{said[: number.start()]}{other}{said[number.end() :]}" if rng.random() < 0.8 else ""
        return "\n".join(lines) + "\n"
    place = rng.choice([number for number, line in enumerate(lines) if line and not line.startswith("#")])
    name, _, value = lines[place].rpartition(" ")
    lines[place] = DAMAGES[rng.choice(list(DAMAGES))](name, float(value), rng.choice(STEPS))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("texts", "read", "count"),
    [
        ([BEFORE, AFTER], read_vllm_metrics, 500),
        ([LLAMA_CPP], read_llama_cpp_metrics, 500),
        ([LOG], read_llama_cpp_log, 500),
    ],
    ids=["vLLM", "llama.cpp", "llama.cpp's log"],
)
def test_no_damage_changes_acceptance_in_silence(
    tmp_path: Path, texts: Sequence[str], read: Callable[[Sequence[Path]], Recording], count: int
) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    whole, found = read(files), Counter[str]()
    for seed in range(count):
        files[-1].write_text(damaged(texts[-1], seed))
        one = read_or_none(read, files)
        found["refused" if one is None else "read"] += 1
        if one is None:
            continue
        same = msgspec.structs.replace(one.counts, notes=()) == msgspec.structs.replace(whole.counts, notes=())
        notes = (*one.counts.notes, *one.notes)
        assert same or any(doubt in note for note in notes for doubt in DOUBTS), f"seed {seed}"
    assert min(found.values()) > count // 20
