"""Fleets of replayed stations as processes, N = 1 to 64 and M = 1, 2, 4 at two ratios Z / S, and their predictions.

What this host's stations add to the stated times is read from small fleets that run among them; a prediction knows
nothing of the run that it predicts.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

import specfleet
from bench.harness import Aim, Case, Report, Row, first_rows, run
from bench.hosts import RATIOS, Host, fleet, host_for, hosts_of, run_kept, small_fleets
from fleet.times.profile import HardwareProfile

COUNTS, DRAFTERS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4)
SMALL_S = 5.0  # about how long a small fleet runs
JUDGED = ("rounds_per_s", "wait_s")
MEAN_AIM, WORST_AIM = 1.0, 3.0  # absolute errors in hundredths
TINY = 0.05  # of a round: a shorter wait is compared with its round
ORDER_SEED = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long each fleet runs")
    parser.add_argument("--passes", type=int, default=3, help="runs of each fleet")
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS, help="numbers of targets")
    parser.add_argument("--seeds", type=int, default=20, help="simulations of each prediction")


def study(options: argparse.Namespace) -> Report:
    """Run all fleets and the small ones in mixed order, then predict each and compare."""
    cells = {
        scenario.name: scenario
        for ratio, drafters, count in product(RATIOS, DRAFTERS, options.counts)
        for scenario in [fleet(ratio, drafters, count, options.seconds)]
    }
    small = small_fleets(min(SMALL_S, options.seconds))
    results: dict[str, list[specfleet.Result]] = {name: [] for name in [*cells, *small]}
    cases = [Case(name, partial(run_kept, scenario, results[name])) for name, scenario in (cells | small).items()]
    np.random.default_rng(ORDER_SEED).shuffle(cases)
    run(cases, options.passes)
    hosts = hosts_of([result.run for name in small for result in results[name]])
    judged = {
        quantity: first_rows(
            Case(
                f"{quantity}, {name}",
                partial(compared, results[name], host_for(cells[name], hosts), quantity, options.seeds),
            )
            for name in cells
        )
        for quantity in JUDGED
    }
    tables = {f"{quantity}: simulated, and as processes": rows for quantity, rows in judged.items()}
    return Report(tables, [aim for each in judged.items() for aim in aims(*each)])


def compared(results: Sequence[specfleet.Result], host: Host, quantity: str, seeds: int) -> Row:
    """Predict a fleet and hold the prediction against its runs; errors in hundredths of the median run."""
    first = results[0]
    assert isinstance(first.scenario.profile, HardwareProfile)
    profile = host.added_to(first.scenario.profile)
    comparison = specfleet.three_errors(first, profile=profile, reruns=results[1:], seeds=seeds)
    by_name = {row.quantity: row for row in comparison.rows}
    row, targets = by_name[quantity], first.scenario.verifiers.count
    share_of_round = row.engine * by_name["rounds_per_s"].engine / targets
    percent = 100 * (share_of_round if quantity == "wait_s" and share_of_round < TINY else 1.0)
    return {
        "fleet": first.scenario.name, "simulated": row.sim, "measured": row.engine, "error, %": percent * row.error,
        "mechanism, %": percent * row.mechanism.value if row.mechanism else None,
        "host, %": percent * row.host.value if row.host else None,
    }  # fmt: skip


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
