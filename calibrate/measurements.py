"""What a calibration measures, stage by stage, and how much.

Without pandas: processes that measure need not import it.
"""

from typing import Literal

import msgspec
import numpy as np

from specfleet.fleet.records.run import Run


class Point(msgspec.Struct, frozen=True):
    """Repeated times of one step at one place of the grid: `tokens` new ones after `context` known ones."""

    tokens: int
    context: int
    times_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The typical time: a preempted step does not move it."""
        return float(np.median(self.times_s))


Points = dict[str, list[Point]]
"""Measured points of each kind of step, by the names of a profile."""


SmallFleet = Literal["saturated", "with_gaps", "warmed", "contended", "turns", "plain", "beside", "sampled"]
"""Kinds of small fleets.

`saturated`, `with_gaps`, `warmed`: replayed targets with a drafter that is always busy, partly busy or idle before each
draft, and idle with warm-up tokens. `contended`, `turns`: real targets and their drafter on one device, by its rule; of
`contended` k targets in run k - 1. `plain`, `beside`: a target that decodes by itself, and one that drafts on its own
device. `sampled`: a target that samples its texts, for the acceptance of sampled drafts.
"""


class Measurements(msgspec.Struct):
    """Measurements of a calibration, or of one of its stages.

    - `runs`: of small fleets.
    - `round_trips_s`: by payload in bytes.
    - `accepted`: accepted lengths of the rounds of each prompt.
    - `vocabulary`, `hidden`: of the models, as a profile has them.
    """

    points: Points = {}
    runs: dict[SmallFleet, list[Run]] = {}
    round_trips_s: list[tuple[int, list[float]]] = []
    accepted: list[list[int]] = []
    vocabulary: int = 0
    hidden: int = 0

    def of(self, kind: SmallFleet) -> list[Run]:
        """Return the runs of a kind of fleet."""
        return self.runs.get(kind, [])

    def add(self, stage: "Measurements") -> None:
        """Add what a stage has measured."""
        for name, points in stage.points.items():
            pairs = zip(self.points.get(name, points), points, strict=True)  # two passes over one grid
            both = [Point(a.tokens, a.context, a.times_s + b.times_s) for a, b in pairs]
            self.points[name] = both if name in self.points else points
        for kind, runs in stage.runs.items():
            self.runs[kind] = [*self.of(kind), *runs]
        self.round_trips_s = stage.round_trips_s or self.round_trips_s
        self.accepted = stage.accepted or self.accepted
        self.vocabulary, self.hidden = stage.vocabulary or self.vocabulary, stage.hidden or self.hidden


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    prefills: tuple[int, ...] = ()  # tokens of prompts that are read beside those of `contexts`
    repeats: int = 5
    prompts: int = 72  # as many as a demo cell decodes, each with its pair there
    longest_gap_s: float = 0.1
    gap_rounds: int = 100  # of each pass
    warm_tokens: tuple[int, ...] = (0, 1, 2, 4)
    warm_rounds: int = 40
    loads: tuple[int, ...] = (1, 3)  # targets that load the drafter in part
    saturated_rounds: int = 300
    loaded_rounds: int = 150
    payloads_bytes: tuple[int, ...] = (64, 1024, 16 * 1024, 128 * 1024)
    pings: int = 60
    concurrent_targets: int = 3  # fleets of 1 .. so many targets run concurrently on one device
    sharing_requests: int = 12  # of each target that shares a device

    def up_to(self, prompt_tokens: int) -> "Effort":
        """Return the effort with prefills of so many tokens, and of half, where they are longer than all contexts."""
        longer = [tokens for tokens in (prompt_tokens // 2, prompt_tokens) if tokens > max(self.contexts)]
        return msgspec.structs.replace(self, prefills=tuple(longer))


QUICK = Effort(
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=5, prompts=48, longest_gap_s=0.05, gap_rounds=80,
    warm_tokens=(0, 2), warm_rounds=30, loads=(2,), saturated_rounds=200, loaded_rounds=150,
    payloads_bytes=(64, 16 * 1024), pings=20, concurrent_targets=2, sharing_requests=8,
)  # fmt: skip
