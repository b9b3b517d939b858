"""SpecDecode-Bench, figures 10 and 12: speed-ups that its authors simulated, by our simulator under their assumptions.

Their times are linear in tokens and their rows copies of one request, so each point is a walk over the recorded texts,
priced as in `specdecode.py`, which a test holds equal to the simulation row by row.
"""

import random
from pathlib import Path

import numpy as np

from bench.harness import data_file, off_by
from bench.specdecode import (
    BATCHES,
    EAGLE_S,
    FIGURE_10,
    FILE,
    METHODS,
    PAPER,
    RECORDED,
    SETS,
    TARGET_S,
    Floats,
    RecordedTexts,
    Walks,
    prefills_s,
    read_recordings,
    rounds_s,
    walks_of,
)
from specfleet.experiments.reproduce.rows import PaperRow, Reproduction, row
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

DATA = (FILE,)
REQUESTS = 300  # of each set
SEED = 42


def reproduce(folder: Path | None) -> Reproduction:
    """Hold our speed-ups against the authors' simulated ones, by set, drafter, depth and batch."""
    recordings = read_recordings(data_file(folder, FILE))
    drawn = {curve: _as_they_read(recorded) for curve, recorded in recordings.items()}
    for name in SETS:
        drawn[name, "combined"] = _combined(*(drawn[name, method] for method in METHODS))
    rows = [
        point
        for (name, method, depth), printed in FIGURE_10.items()
        for point in _points(name, method, drawn[name, method], depth, printed)
    ]
    combined = [point for point in rows if point.case["drafter"] == "combined"]
    others = [point for point in rows if point.case["drafter"] != "combined"]
    quantity = "points that are equal to the second decimal"
    counted = [
        row(
            quantity,
            {"figure": figure},
            "identity",
            len(points),
            sum(point.ours is not None and round(point.ours, 2) == point.paper for point in points),
        )
        for figure, points in (("one drafter", others), ("combined", combined))
    ]
    off = f"all {len(rows)} points: {off_by((point.error for point in rows), digits=2)}"
    return Reproduction("specdecode-fig10", [*rows, *counted], [*PAPER.assumed("specdecode-fig10"), off])


def _as_they_read(recorded: RecordedTexts) -> RecordedTexts:
    """Return the requests that they drew, each place with what was recorded one place earlier."""
    numbers = random.Random(SEED).sample(range(len(recorded.texts)), min(REQUESTS, len(recorded.texts)))
    drawn = recorded.only(numbers)
    return RecordedTexts([(0, *text[:-1]) for text in drawn.texts], drawn.prompts)


def _combined(first: RecordedTexts, second: RecordedTexts) -> RecordedTexts:
    """Return the better of both at each place, as long as the shorter of both goes."""
    pairs = zip(first.texts, second.texts, strict=True)
    return RecordedTexts([tuple(map(max, *pair)) for pair in pairs], first.prompts)


def _points(
    name: str, method: str, recorded: RecordedTexts, depth: int | str, printed: tuple[float, ...]
) -> list[PaperRow]:
    """Return the speed-ups of one curve."""
    walks = walks_of(recorded.texts, recorded.prompts, RECORDED if depth == "oracle" else int(depth))
    plain = walks_of(recorded.texts, recorded.prompts, 0)
    sharing = np.ones_like(walks.accepted)  # of the rows that have a draft at all
    if method != "EAGLE-3":
        sharing = np.where(walks.accepted > 0, 1.0, 0.0 if depth == "oracle" else PAPER["matching"][name])
    drafted = walks.accepted if depth == "oracle" else sharing * int(depth)
    rows = []
    for batch, paper in zip(BATCHES, printed, strict=True):
        draft = head_draft() if method == "EAGLE-3" else _lookup(walks, drafted, sharing, batch)
        speculative = _tokens_per_s(walks, drafted, profile_with(draft), batch)
        ours = speculative / _tokens_per_s(plain, np.zeros_like(plain.context), profile_with(StepTime()), batch)
        case = {"set": name, "drafter": method, "depth": depth, "B": batch}
        rows.append(row("speed-up", case, "identity", paper, ours))
    return rows


def _tokens_per_s(walks: Walks, drafted: Floats, profile: HardwareProfile, batch: int) -> float:
    """Mean throughput of groups of copies; `drafted`: mean tokens drafted for a row in each round."""
    round_s = rounds_s(profile, walks.context, drafted, batch)
    answer_s = prefills_s(profile, walks.prompts, batch) + walks.of_requests(round_s)
    return float(np.mean(batch * walks.answers / answer_s))


def profile_with(draft: StepTime) -> HardwareProfile:
    """Return their times with a drafter's; what a step takes besides is in the target's."""
    (fixed_s, fed_s, cached_s), step_s = TARGET_S, PAPER["simulator"]["step_s"]
    prefill = StepTime(base_s=fixed_s + step_s, per_token_s=fed_s, per_row_token_s=fed_s)
    verify = StepTime(
        fixed_s + step_s,
        per_token_s=fed_s,
        per_row_token_s=fed_s,
        per_context_token_s=cached_s,
        per_row_context_s=cached_s,
    )
    return HardwareProfile(name="specdecode-bench", draft=draft, verify=verify, verify_prefill=prefill)


def head_draft() -> StepTime:
    """Return the time of a draft of the EAGLE-3 head, which feeds one token more than it drafts."""
    fixed_s, fed_s, cached_s = EAGLE_S
    return StepTime(base_s=fixed_s + fed_s, per_token_s=fed_s, per_context_token_s=cached_s, per_row_context_s=cached_s)


def _lookup(walks: Walks, drafted: Floats, sharing: Floats, batch: int) -> StepTime:
    """Return the time of a token that a lookup finds, from its share of the passes of all rounds."""
    fixed_s, fed_s, cached_s = TARGET_S
    pass_s = fixed_s + fed_s * batch * (drafted + 1) + cached_s * batch * walks.context
    lookups_s = PAPER["simulator"]["lookup_share"] * float(np.sum(sharing * pass_s))
    token_s = lookups_s / (batch * float(np.sum(drafted)) or 1.0)
    return StepTime(per_token_s=token_s, per_row_token_s=token_s)
