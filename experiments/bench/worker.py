"""What a drafter's worker does beside drafting, between two drafts of a fleet that keeps it busy, as a share of S(d).

From the end of a draft to the start of the next where one waits (sending, receiving, deciding, the control
computation), and from the start of a step to its end without the step's own time. Waits for a core are left out.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from engine.launch.serve import serve
from experiments.replayed.cases import fleet
from experiments.replayed.host import not_drafting
from experiments.terminal.printing import number, print_table, progress
from fleet.records.intervals import student_t_interval
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario

COUNTS = (4, 16, 64)
AIM = 0.05
RATIO, SECONDS = 2.0, 4.0  # of a verification over a draft: at N = 4 the drafter has no rest; and of each run
FIRST_VERIFY_S = 0.008  # beside the demo pair's drafter, until it is known how long that drafts
SMALL_MODEL, REPLAYED = "demo pair's drafter", "replayed drafter"


class Share(msgspec.Struct, frozen=True):
    """What one run's drafter did between its drafts: turnaround and dispatch in seconds, S, and their share of it."""

    turnaround_s: float
    dispatch_s: float
    share: float

    @property
    def draft_s(self) -> float:
        """Mean time of a draft."""
        return (self.turnaround_s + self.dispatch_s) / self.share


def bench_worker(repetitions: int) -> dict[tuple[str, int], list[Share]]:
    """Run every fleet in turn, and so often; return what its drafter did, by kind of drafter and N."""
    tried = Share(*not_drafting(serve(small_model(max(COUNTS), FIRST_VERIFY_S)).run))
    fleets = {(REPLAYED, count): fleet(None, RATIO, count, SECONDS) for count in COUNTS}
    fleets |= {(SMALL_MODEL, count): small_model(count, RATIO * tried.draft_s) for count in COUNTS}
    shares: dict[tuple[str, int], list[Share]] = {place: [] for place in fleets}
    with progress("worker", repetitions * len(fleets)) as advance:
        for _ in range(repetitions):
            for place, scenario in fleets.items():
                advance(f"{place[0]}, N = {place[1]}")
                shares[place].append(Share(*not_drafting(serve(scenario).run)))
    return shares


def small_model(count: int, verify_s: float) -> Scenario:
    """The demo pair's drafter with replayed targets that verify for so long."""
    return make_scenario(
        {
            "name": f"{SMALL_MODEL}, N = {count}",
            "drafters": {"depth": 5},
            "verifiers": {
                "count": count, "kind": "replayed",
                **{step: {"base_s": verify_s} for step in ("verify", "prefill", "decode")},
            },
            "workload": {"requests": max(count, 32), "prompt_tokens": 64, "new_tokens": 64},
        }
    )  # fmt: skip


def show_worker(shares: Mapping[tuple[str, int], Sequence[Share]]) -> None:
    """Print shares with their intervals over the runs, beside the aim."""
    rows = []
    for (kind, count), of_runs in shares.items():
        known = [run for run in of_runs if np.isfinite(run.share)]
        if not known:
            rows.append((kind, str(count), *["-"] * 6))
            continue
        turnaround_s, dispatch_s, draft_s, share = (
            float(np.mean([getattr(run, name) for run in known]))
            for name in ("turnaround_s", "dispatch_s", "draft_s", "share")
        )
        low, high = student_t_interval([run.share for run in known])[-2:]
        rows.append(
            (
                kind, str(count), number(1e3 * draft_s), number(1e6 * turnaround_s), number(1e6 * dispatch_s),
                f"{share:.2%} ({low:.2%} .. {high:.2%})", "met" if high <= AIM else "missed" if low > AIM else "open",
                number(1e3 * (turnaround_s + dispatch_s) / AIM),
            )
        )  # fmt: skip
    print_table(
        "a drafter's worker beside its drafts",
        (
            "drafter",
            "N",
            "S, ms",
            "turnaround, us",
            "dispatch, us",
            "of S, 95 % interval",
            f"at most {AIM:.0%}",
            "from S, ms, on",
        ),
        rows,
    )
