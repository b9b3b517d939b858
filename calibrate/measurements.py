"""What a calibration measures, stage by stage, and how much."""

from typing import Literal

import msgspec

from specfleet.fleet.policies.outcome import Token
from specfleet.fleet.records.run import Run

RunKind = Literal["loops", "recorded", "saturated", "with_gaps", "warmed", "contended", "turns"]
"""Kinds of runs.

`loops`: closed loops of a target that drafts on its own device, whose steps are timed. `recorded`: a fleet whose drafts
are as those of the scenario, for their acceptance. `saturated`, `with_gaps`, `warmed`: replayed targets with a drafter
that is always busy, partly busy or idle before each draft, and idle with warm-up tokens. `contended`, `turns`: real
targets and their drafter on one device, by its rule; of `contended` k targets in run k - 1.
"""


class Measurements(msgspec.Struct):
    """Measurements of a calibration, or of one of its stages.

    - `round_trips_s`: by payload in bytes.
    - `signals`: of each recorded request's drafted tokens.
    """

    runs: dict[RunKind, list[Run]] = {}
    round_trips_s: list[tuple[int, list[float]]] = []
    signals: list[list[Token]] = []

    def of(self, kind: RunKind) -> list[Run]:
        """Return the runs of a kind."""
        return self.runs.get(kind, [])

    def add(self, stage: "Measurements") -> None:
        """Add what a stage has measured."""
        for kind, runs in stage.runs.items():
            self.runs[kind] = [*self.of(kind), *runs]
        self.round_trips_s = stage.round_trips_s or self.round_trips_s
        self.signals = stage.signals or self.signals


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points.

    Several passes let a slow minute of the host fall on all steps. Means of acceptance over 192 requests still differ
    by 5 % between sets of prompts.
    """

    passes: int = 3
    requests: int = 12  # of a loop of up to 4 rows; more have as many for each
    recorded: int = 384  # requests of a target that drafts on its own device, for their acceptance
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


QUICK = Effort(
    requests=6, recorded=96, prompts=48, longest_gap_s=0.05, gap_rounds=80, warm_tokens=(0, 2), warm_rounds=30,
    loads=(2,), saturated_rounds=200, loaded_rounds=150, payloads_bytes=(64, 16 * 1024), pings=20,
    concurrent_targets=2, sharing_requests=8,
)  # fmt: skip
