"""What replayed stations of this host add to stated times: overhead, links, and drafts that end late.

It is read from runs of small fleets. Behind a router it is something else: drafters report to it before they send, and
more processes share the cores.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import numpy as np

import specfleet
from bench.harness import Row
from calibrate.overheads import delays_of, link_of, overhead_of
from fleet.acceptance.models import Geometric, expected_committed
from fleet.records.run import Run
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.times.overhead import Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime

SERVICE_S, DEPTH = 0.01, 5
RATIOS = (4.0, 16.0)  # t_v over S: N_full = 5 and 17
SMALL_FLEETS = {1: (3, 24), 2: (3, 24), 4: (12, 24)}  # targets by drafters; no fleet that is predicted has as many
SMALL_SEED = 7
ACCEPTANCE = Geometric(0.75)
NEW_TOKENS = 40
REPLAYED = {"drafters.kind": "replayed", "verifiers.kind": "replayed"}


class Host(msgspec.Struct, frozen=True):
    """What this host's replayed stations add.

    Keys:
        overhead: Delays around steps.
        link: The link between drafter and target, one way, where the scenario states none.
        late_s: By how much drafts take longer than drawn, because a wait ends late.
    """

    overhead: StationOverheads
    link: LinkTime
    late_s: float

    def added_to(self, stated: HardwareProfile) -> HardwareProfile:
        """Return a profile of stated times with what this host adds, for predictions of its runs."""
        draft = msgspec.structs.replace(stated.draft, base_s=stated.draft.base_s + self.late_s)
        own = Overheads(own=self.overhead)
        link = self.link if stated.link == LinkTime() else stated.link
        return msgspec.structs.replace(stated, draft=draft, overhead=own, link=link)


def fleet(ratio: float, drafters: int, targets: int, seconds: float, seed: int = 0) -> Scenario:
    """Return replayed drafters and targets with stated times, and requests for about `seconds`.

    Steps spread evenly around their means, since waits of constant ones would be none or all alike. Prefills spread
    over a round, so that targets do not all begin at once. Several drafters have a router; a move costs nothing.
    """
    verify_s = ratio * SERVICE_S
    routed = {"route": "shortest-queue", "move": "shared", "view_delay_s": 0.001} if drafters > 1 else {}
    sharing = min(drafters, targets)
    carried = min(targets / sharing, 1 + ratio)  # targets of a drafter that it has time for
    rounds = seconds * carried * sharing / (SERVICE_S + verify_s) / targets
    per_target = max(1, round(rounds * expected_committed(ACCEPTANCE, DEPTH) / NEW_TOKENS))
    return make_scenario(
        {
            "name": f"Z/S = {ratio:g}, M = {drafters}, N = {targets}",
            "seed": seed,
            "profile": {
                "name": "stated", "draft": _uniform(SERVICE_S, 0.3), "draft_prefill": {"base_s": 2 * SERVICE_S},
                "verify": _uniform(verify_s, 0.5), "verify_prefill": _uniform(verify_s, 1.0),
            },
            "acceptance": ACCEPTANCE,
            "drafters": {"kind": "replayed", "depth": DEPTH, "count": drafters} | routed,
            "verifiers": {"kind": "replayed", "count": targets},
            "workload": {"requests": per_target * targets, "prompt_tokens": 64, "new_tokens": NEW_TOKENS},
        }
    )  # fmt: skip


def _uniform(mean_s: float, half: float) -> dict[str, Any]:
    spread = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [1 - half, 1 + half]}
    return {"base_s": mean_s, "spread": spread}


def small_fleets(seconds: float) -> dict[str, Scenario]:
    """Return the small fleets by name."""
    return {
        f"small: {scenario.name}": scenario
        for drafters, counts in SMALL_FLEETS.items()
        for ratio, targets in product(RATIOS, counts)
        for scenario in [fleet(ratio, drafters, targets, seconds, SMALL_SEED)]
    }


def run_kept(scenario: Scenario, results: list[specfleet.Result]) -> Row:
    """Run a fleet as processes and keep the run."""
    results.append(specfleet.run(scenario))
    return {}


def hosts_of(runs: Sequence[Run]) -> dict[bool, Host]:
    """Return what runs of small fleets show, by whether there was a router."""
    return {routed: host_of([run for run in runs if run.header.fleet.routed == routed]) for routed in (False, True)}


def host_for(scenario: Scenario, hosts: dict[bool, Host]) -> Host:
    """Return what the host adds to a scenario's fleet."""
    return hosts[resolve(scenario).routed]


def host_of(runs: Sequence[Run]) -> Host:
    """Read the records of small fleets."""
    return Host(
        StationOverheads(*(overhead_of(delays_of(runs, drafters)) for drafters in (True, False))),
        link_of(runs, LinkTime()),
        float(np.mean(np.concatenate([_late_s(run) for run in runs]))),
    )


def _late_s(run: Run) -> np.ndarray:
    """Return by how much each draft took longer than drawn: a simulation draws the same times in the same order."""
    late_s = []
    again = specfleet.simulate(run.header.scenario).run
    for name in run.header.fleet.drafter_names:
        measured_s, drawn_s = (_drafts_s(one, name) for one in (run, again))
        both = min(len(measured_s), len(drawn_s))
        late_s.append(measured_s[:both] - drawn_s[:both])
    return np.maximum(np.concatenate(late_s), 0.0)


def _drafts_s(run: Run, name: str) -> np.ndarray:
    rows = run.frame()
    drafts = rows[(rows.station == name) & (rows.event == "done") & (rows.kind == "draft")]
    times_s: np.ndarray = drafts.sort_values("seq").duration_s.to_numpy()
    return times_s
