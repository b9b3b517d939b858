"""Fleets of replayed stations as processes, N = 1 to 64 and M = 1, 2, 4 at two ratios Z / S, and their predictions.

What this host's stations add to the stated times is read from small fleets that run among them; a prediction knows
nothing of the run that it predicts. Behind a router they add something else: drafters report to it before they send,
and more processes share the cores.
"""

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import msgspec
import numpy as np

import specfleet
from bench.harness import Aim, Options, Report, Row, run
from specfleet.calibration.effects import delays_of, link_of, overhead_of
from specfleet.fleet.acceptance.models import Geometric, expected_committed
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.overhead import Overheads, StationOverheads
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime

SERVICE_S, DEPTH = 0.01, 5
RATIOS = (4.0, 16.0)  # t_v over S: N_full = 5 and 17
COUNTS, DRAFTERS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4)
SMALL_FLEETS = {1: (3, 24), 2: (3, 24), 4: (12, 24)}  # targets by drafters; no fleet that is predicted has as many
SMALL_S = 5.0  # about how long a small fleet runs
SMALL_SEED, ORDER_SEED = 7, 1
ACCEPTANCE = Geometric(0.75)
NEW_TOKENS = 40
JUDGED = ("rounds_per_s", "wait_s")
MEAN_AIM, WORST_AIM = 1.0, 3.0  # absolute errors in hundredths
TINY = 0.05  # of a round: a shorter wait is compared with its round

OPTIONS: Options = {
    "--seconds": {"type": float, "default": 10.0, "help": "about how long each fleet runs"},
    "--passes": {"type": int, "default": 3, "help": "runs of each fleet"},
    "--counts": {"type": int, "nargs": "*", "default": COUNTS, "help": "numbers of targets"},
    "--seeds": {"type": int, "default": 20, "help": "simulations of each prediction"},
}


def study(options: argparse.Namespace) -> Report:
    """Run all fleets and the small ones in mixed order, then predict each and compare."""
    cells = named(fleet(*each, options.seconds) for each in product(RATIOS, DRAFTERS, options.counts))
    small = small_fleets(options.seconds)
    every = list((cells | small).values())
    np.random.default_rng(ORDER_SEED).shuffle(every)
    results = run({scenario.name: partial(specfleet.run, scenario) for scenario in every}, options.passes)
    hosts = hosts_of(result for name in small for result in results[name])
    works = {
        f"predicted: {name}": partial(compared, results[name], hosts[resolve(scenario).routed], options.seeds)
        for name, scenario in cells.items()
    }
    found = [rows for (rows,) in run(works).values()]
    judged = {quantity: [rows[quantity] for rows in found] for quantity in JUDGED}
    tables = {f"{quantity}: simulated, and as processes": rows for quantity, rows in judged.items()}
    return Report(tables, [aim for each in judged.items() for aim in aims(*each)])


def fleet(ratio: float, drafters: int, targets: int, seconds: float, seed: int = 0, kind: str = "") -> Scenario:
    """Return replayed drafters and targets with stated times, and requests for about `seconds`.

    Steps spread evenly around their means, since waits of constant ones would be none or all alike. Prefills spread
    over a round, so that targets do not all begin at once. Several drafters have a router; a move costs a prefill.
    """
    verify_s = ratio * SERVICE_S
    routed = {"route": "shortest-queue"} if drafters > 1 else {}
    sharing = min(drafters, targets)
    carried = min(targets / sharing, 1 + ratio)  # targets of a drafter that it has time for
    rounds = seconds * carried * sharing / (SERVICE_S + verify_s) / targets
    per_target = max(1, round(rounds * expected_committed(ACCEPTANCE, DEPTH) / NEW_TOKENS))
    return make_scenario(
        {
            "name": f"{kind}Z/S = {ratio:g}, M = {drafters}, N = {targets}",
            "seed": seed,
            "profile": {
                "name": "stated", "draft": uniform(SERVICE_S, 0.3), "draft_prefill": {"base_s": 2 * SERVICE_S},
                "verify": uniform(verify_s, 0.5), "verify_prefill": uniform(verify_s, 1.0),
            },
            "acceptance": ACCEPTANCE,
            "drafters": {"kind": "replayed", "depth": DEPTH, "count": drafters} | routed,
            "verifiers": {"kind": "replayed", "count": targets},
            "workload": {"requests": per_target * targets, "prompt_tokens": 64, "new_tokens": NEW_TOKENS},
        }
    )  # fmt: skip


def uniform(mean_s: float, half: float) -> dict[str, Any]:
    """Return a time that spreads evenly, by `half` of its mean to either side."""
    spread = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [1 - half, 1 + half]}
    return {"base_s": mean_s, "spread": spread}


def named(scenarios: Iterable[Scenario]) -> dict[str, Scenario]:
    """Return scenarios by name."""
    return {scenario.name: scenario for scenario in scenarios}


def small_fleets(most_s: float) -> dict[str, Scenario]:
    """Return the small fleets by name; they run for `most_s` at most."""
    return named(
        fleet(ratio, drafters, targets, min(SMALL_S, most_s), SMALL_SEED, "small: ")
        for drafters, counts in SMALL_FLEETS.items()
        for ratio, targets in product(RATIOS, counts)
    )


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


def hosts_of(results: Iterable[specfleet.Result]) -> dict[bool, Host]:
    """Return what runs of small fleets show, by whether there was a router."""
    by_router: dict[bool, list[Run]] = {False: [], True: []}
    for result in results:
        by_router[result.run.header.fleet.routed].append(result.run)
    return {
        routed: Host(
            StationOverheads(*(overhead_of(delays_of(runs, drafters)) for drafters in (True, False))),
            link_of(runs, LinkTime()),
            float(np.mean(np.concatenate([_late_s(one) for one in runs]))),
        )
        for routed, runs in by_router.items()
    }


def _late_s(ran: Run) -> np.ndarray:
    """Return by how much each draft took longer than drawn: a simulation draws the same times in the same order."""
    late_s = []
    again = specfleet.simulate(ran.header.scenario).run
    for name in ran.header.fleet.drafter_names:
        measured_s, drawn_s = (_drafts_s(one, name) for one in (ran, again))
        both = min(len(measured_s), len(drawn_s))
        late_s.append(measured_s[:both] - drawn_s[:both])
    return np.maximum(np.concatenate(late_s), 0.0)


def _drafts_s(ran: Run, name: str) -> np.ndarray:
    rows = ran.frame()
    drafts = rows[(rows.station == name) & (rows.event == "done") & (rows.kind == "draft")]
    times_s: np.ndarray = drafts.sort_values("seq").duration_s.to_numpy()
    return times_s


def compared(results: Sequence[specfleet.Result], host: Host, seeds: int) -> dict[str, Row]:
    """Predict a fleet and hold each quantity against its runs; errors in hundredths of the median run."""
    first = results[0]
    assert isinstance(first.scenario.profile, HardwareProfile)
    profile = host.added_to(first.scenario.profile)
    comparison = specfleet.three_errors(first, profile=profile, reruns=results[1:], seeds=seeds)
    by_name = {row.quantity: row for row in comparison.rows}
    found = {}
    for quantity in JUDGED:
        row, targets = by_name[quantity], first.scenario.verifiers.count
        share_of_round = row.engine * by_name["rounds_per_s"].engine / targets
        percent = 100 * (share_of_round if quantity == "wait_s" and share_of_round < TINY else 1.0)
        found[quantity] = {
            "fleet": first.scenario.name, "simulated": row.sim, "measured": row.engine, "error, %": percent * row.error,
            "mechanism, %": percent * row.mechanism.value if row.mechanism else None,
            "host, %": percent * row.host.value if row.host else None,
        }  # fmt: skip
    return found


def aims(quantity: str, rows: Sequence[Row]) -> list[Aim]:
    """Bound the errors of the fleets with runs that agree; other runs say nothing of the prediction."""
    agreeing = [row for row in rows if row["host, %"] is None or row["host, %"] <= WORST_AIM]
    found = []
    for error in ("mechanism", "error"):
        errors = [abs(row[f"{error}, %"]) for row in agreeing if row[f"{error}, %"] is not None]
        name = f"{quantity}, {error}, %, of {len(errors)} of {len(rows)} fleets whose runs agree"
        mean, worst = (float(np.mean(errors)), max(errors)) if errors else (float("nan"),) * 2
        found += [Aim(f"{name}: mean", mean, MEAN_AIM), Aim(f"{name}: worst", worst, WORST_AIM)]
    return found
