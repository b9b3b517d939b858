"""SpecDecode-Bench, figures 10 and 12: speed-ups that its authors simulated, by our simulator under their assumptions.

Their times are linear in tokens and their rows copies of one request, so each point is a walk over the recorded texts,
priced by `sim/lockstep.py`, which a test holds equal to the simulation row by row. The recordings of Llama-3.1-8B are
the authors' (arXiv 2601.11580), in the folder `--data`.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfleet.calibration.readers.specdecode_bench import Method, read_specdecode_bench
from specfleet.experiments.reproduce.rows import Inputs, PaperRow, Reproduction, data_file, off_by, row
from specfleet.fleet.acceptance.places import Text
from specfleet.fleet.data.shipped import published_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.lockstep import Walks, prefills_s, rounds_s, walks_of

FIGURE_10: dict[tuple[str, str, int | str], tuple[float, ...]] = {
    (name, method, int(depth) if depth.isdecimal() else depth): tuple(speed_ups)
    for name, methods in published_tables("specdecode-bench")["figure_10"].items()
    for method, by_depth in methods.items()
    for depth, speed_ups in by_depth.items()
}
"""Figures 10 and 12, simulated speed-ups by set, drafter and depth, at BATCHES; "combined": of an oracle over both."""
FILE = "specdecode-bench-llama31-8b-acceptance.parquet"
SETS = {"InstructCoder": "instructcoder", "ShareGPT": "sharegpt", "GSM8K": "gsm8k", "CNN": "cnn"}
METHODS: dict[str, Method] = {"n-gram": "ngram", "EAGLE-3": "eagle"}
# What the authors' simulator takes for the share of lookups that find something where nothing is accepted.
MATCHING = {"InstructCoder": 0.8, "ShareGPT": 0.2, "GSM8K": 0.2, "CNN": 0.4}


class RecordedTexts(NamedTuple):
    """Texts of one set under one method, accepted tokens by place from 1 on, and the tokens of each prompt."""

    texts: Sequence[Text]
    prompts: Sequence[int]

    def only(self, numbers: Sequence[int]) -> "RecordedTexts":
        """Return some of the texts."""
        return RecordedTexts([self.texts[number] for number in numbers], [self.prompts[number] for number in numbers])


def recordings(inputs: Inputs, name: str) -> dict[tuple[str, str], RecordedTexts]:
    """Read all sets and methods, by their names in the figures, for the reproduction `name`.

    Raises InputError where the folder or the file is missing, or the file contradicts its format.
    """
    file, found = data_file(inputs, FILE, name), {}
    for title, dataset in SETS.items():
        for method, key in METHODS.items():
            read = read_specdecode_bench([file], key, dataset)
            found[title, method] = RecordedTexts(read.texts, [prompt for prompt, _ in read.lengths])
        counts = [len(found[title, method].texts) for method in METHODS]
        if len(set(counts)) > 1:
            found_counts = " and ".join(f"{count} of {method}" for count, method in zip(counts, METHODS, strict=True))
            raise InputError(
                f"{file}: {dataset} has {found_counts}; needs as many answers of both, with a place after the prefill"
            )
    return found


BATCHES = (1, 8, 16, 32, 64, 128)
REQUESTS = 300  # of each set
SEED = 42
RECORDED = 20  # draft tokens that an oracle may find
# Their constants of Llama-3.1-8B on an H100, in seconds: a pass of the target, a draft of the head, all else of a step.
TARGET_S = (5.88590713e-3, 2.10103129e-5, 3.92645679e-8)  # fixed, a token fed, a token in the cache
EAGLE_S = (2.13526175e-3, 8.41429603e-7, 2.37768493e-9)  # fixed, a token fed in one row, a token in the cache
LOOKUP_SHARE = 0.005875  # of the target's pass
STEP_S = 1.20683946e-3

ASSUMED = [
    (
        "all as the authors' simulator has it, which is not what was recorded: a round reads one place earlier, so "
        "that the first accepts nothing and the mean is up to 0.026 tokens a round lower"
    ),
    "a draft of the EAGLE-3 head takes the same for every depth; nothing but tokens and cache makes a pass longer",
    "where a lookup has nothing accepted it found something with one probability for each set, drawn for each row",
    f"{REQUESTS} requests of each set, Python's random.sample with seed {SEED}; prompts are prefilled in one step",
    "combined: the better of both drafters at each place costs a lookup, also where the head is the better one",
    (
        "a lookup takes a share of the pass that follows; ours takes a time for each token that it finds, with the "
        "same sum over all requests: a drafter's points may differ by this alone. Those of both combined differ with "
        "the share itself, too, for a reason that is not known"
    ),
]


def specdecode_fig10(inputs: Inputs) -> Reproduction:
    """Figures 10 and 12: speed-up by set, drafter, depth and batch; `--data` has the recordings.

    Raises InputError without them.
    """
    found = recordings(inputs, "specdecode-fig10")
    drawn = {curve: _as_they_read(recorded) for curve, recorded in found.items()}
    for name in SETS:
        drawn[name, "combined"] = _combined(*(drawn[name, method] for method in METHODS))
    rows = [
        one
        for (name, method, depth), printed in FIGURE_10.items()
        for one in _points(name, method, drawn[name, method], depth, printed)
    ]
    counted = [
        row("points that are equal to the second decimal", {"figure": figure}, "identity", len(of), _equal(of))
        for figure, of in (
            ("one drafter", [one for one in rows if one.case["drafter"] != "combined"]),
            ("combined", [one for one in rows if one.case["drafter"] == "combined"]),
        )
    ]
    off = f"all {len(rows)} points: {off_by((one.error for one in rows), digits=2)}"
    return Reproduction("specdecode-fig10", [*rows, *counted], [*ASSUMED, off])


def _as_they_read(recorded: RecordedTexts) -> RecordedTexts:
    """Return the requests that they drew, each place with what was recorded one place earlier."""
    numbers = random.Random(SEED).sample(range(len(recorded.texts)), min(REQUESTS, len(recorded.texts)))
    drawn = recorded.only(numbers)
    return RecordedTexts([(0, *text[:-1]) for text in drawn.texts], drawn.prompts)


def _combined(first: RecordedTexts, second: RecordedTexts) -> RecordedTexts:
    """Return the better of both at each place, as long as the shorter of both goes."""
    pairs = zip(first.texts, second.texts, strict=True)
    return RecordedTexts([tuple(map(max, one, other)) for one, other in pairs], first.prompts)


def _points(
    name: str, method: str, recorded: RecordedTexts, depth: int | str, printed: tuple[float, ...]
) -> list[PaperRow]:
    """Return the speed-ups of one curve."""
    walks = walks_of(recorded.texts, recorded.prompts, RECORDED if depth == "oracle" else int(depth))
    plain = walks_of(recorded.texts, recorded.prompts, 0)
    sharing = np.ones_like(walks.accepted)  # of the rows that have a draft at all
    if method != "EAGLE-3":
        sharing = np.where(walks.accepted > 0, 1.0, 0.0 if depth == "oracle" else MATCHING[name])
    drafted = walks.accepted if depth == "oracle" else sharing * int(depth)
    rows = []
    for batch, paper in zip(BATCHES, printed, strict=True):
        draft = head_draft() if method == "EAGLE-3" else _lookup(walks, drafted, sharing, batch)
        speculative = _tokens_per_s(walks, drafted, profile_with(draft), batch)
        ours = speculative / _tokens_per_s(plain, np.zeros_like(plain.context), profile_with(StepTime()), batch)
        case = {"set": name, "drafter": method, "depth": depth, "B": batch}
        rows.append(row("speed-up", case, "identity", paper, ours))
    return rows


def _tokens_per_s(walks: Walks, drafted: NDArray[np.float64], profile: HardwareProfile, batch: int) -> float:
    """Mean throughput of groups of copies; `drafted`: mean tokens drafted for a row in each round."""
    round_s = rounds_s(profile, walks.context, drafted, batch)
    answer_s = prefills_s(profile, walks.prompts, batch) + walks.of_requests(round_s)
    return float(np.mean(batch * walks.answers / answer_s))


def profile_with(draft: StepTime) -> HardwareProfile:
    """Return their times with a drafter's; what a step takes besides is in the target's."""
    fixed_s, fed_s, cached_s = TARGET_S
    return HardwareProfile(
        name="specdecode-bench",
        draft=draft,
        verify=StepTime(
            base_s=fixed_s + STEP_S,
            per_token_s=fed_s,
            per_row_token_s=fed_s,
            per_context_token_s=cached_s,
            per_row_context_s=cached_s,
        ),
        verify_prefill=StepTime(base_s=fixed_s + STEP_S, per_token_s=fed_s, per_row_token_s=fed_s),
    )


def head_draft() -> StepTime:
    """Return the time of a draft of the EAGLE-3 head, which feeds one token more than it drafts."""
    fixed_s, fed_s, cached_s = EAGLE_S
    return StepTime(base_s=fixed_s + fed_s, per_token_s=fed_s, per_context_token_s=cached_s, per_row_context_s=cached_s)


def _lookup(walks: Walks, drafted: NDArray[np.float64], sharing: NDArray[np.float64], batch: int) -> StepTime:
    """Return the time of a token that a lookup finds, from its share of the passes of all rounds."""
    fixed_s, fed_s, cached_s = TARGET_S
    pass_s = fixed_s + fed_s * batch * (drafted + 1) + cached_s * batch * walks.context
    token_s = LOOKUP_SHARE * float(np.sum(sharing * pass_s)) / (batch * float(np.sum(drafted)) or 1.0)
    return StepTime(per_token_s=token_s, per_row_token_s=token_s)


def _equal(rows: list[PaperRow]) -> int:
    return sum(one.ours is not None and round(one.ours, 2) == one.paper for one in rows)
