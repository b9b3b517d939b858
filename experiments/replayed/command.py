"""Run fleets of replayed stations, predict them from others that run among them, and hold both against each other."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from experiments.replayed.cases import Planned, cells, table1
from experiments.replayed.chance import long_enough, simulated_nearby
from experiments.replayed.host import known, later, not_drafting
from experiments.replayed.outcomes import JUDGED, Outcome, outcomes_of
from experiments.replayed.running import SHORT, Effort, measured_hosts, run_among
from experiments.terminal.exits import keeping
from experiments.terminal.printing import number, print_table, remark
from fleet.files import check_folder, write_file
from fleet.records.run import Run

MEAN_AIM, WORST_AIM = 0.01, 0.03


def main() -> int:
    """Run everything, print it, and leave it in the folder; 1 where R_q or waits are further off than aimed at."""
    parser = argparse.ArgumentParser(prog="python -m experiments.replayed", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/replayed"))
    parser.add_argument("--short", action="store_true", help="one pass of short runs")
    parser.add_argument(
        "--only", choices=("cells", "table1"), help="the N at two ratios, or the paper's table; else both"
    )
    options = parser.parse_args()
    check_folder(options.out)
    effort = SHORT if options.short else Effort()
    with keeping(options.out):
        before = measured_hosts(effort.seconds, options.out)
        of_cells = [long_enough(cell, JUDGED, effort.most_longer) for cell in cells(before, effort.seconds)]
        of_table = [long_enough(cell, JUDGED, effort.most_longer) for cell in table1(before, effort.seconds)]
        planned = {"cells": of_cells, "table1": of_table}
        chosen = {name: of_name for name, of_name in planned.items() if options.only in (None, name)}
        beyond = [judge(name, of_name, effort, options.out) for name, of_name in chosen.items()]
    return max(beyond)


def judge(name: str, planned: Sequence[Planned], effort: Effort, out: Path) -> int:
    """Run in an order that mixes all, predict, compare, print and write; 1 where R_q or waits are beyond the aims.

    A host is another one some minutes later. So the fleets that it is known by run among the others, and predictions
    rest on those alone: of a run that is predicted they know nothing.
    """
    runs, hosts = run_among(name, planned, effort, out)
    planned = [known(cell, hosts) for cell in planned]
    expected = [simulated_nearby(later(cell.scenario, cell.late_s)) for cell in planned]
    outcomes = [
        outcome
        for cell, of_sims, of_cell in zip(planned, expected, runs, strict=True)
        for outcome in outcomes_of(cell, of_sims, of_cell)
    ]
    write_file(out / f"{name}.json", msgspec.json.format(msgspec.json.encode(outcomes)))
    print_outcomes(name, outcomes)
    print_worker(planned, runs)
    print_by_drafters(name, outcomes)
    return max(print_errors(quantity, outcomes) for quantity in JUDGED)


def print_outcomes(name: str, outcomes: Sequence[Outcome]) -> None:
    """Print every quantity of every cell."""
    cases = list(outcomes[0].case)
    papers = any(outcome.paper is not None for outcome in outcomes)
    rows = [
        (
            outcome.quantity, *(f"{outcome.case[key]:g}" for key in cases),
            *([number(outcome.paper)] if outcome.paper is not None else []),
            number(outcome.predicted), number(outcome.measured),
            f"{outcome.error:+.2%}", f"{outcome.mechanism:+.2%}", f"{outcome.chance:.2%}", f"{outcome.host:.2%}",
        )
        for outcome in sorted(outcomes, key=lambda outcome: JUDGED.index(outcome.quantity))
    ]  # fmt: skip
    headings = (
        "quantity",
        *cases,
        *(["paper"] if papers else []),
        "simulated",
        "processes",
        "error",
        "mechanism",
        "chance",
        "host",
    )
    print_table(f"{name}: simulated, and as processes", headings, rows)


def print_worker(planned: Sequence[Planned], runs: Sequence[Sequence[Run]]) -> None:
    """Print what the drafter's worker does beside drafting, where it had no rest."""
    rows = []
    for cell, of_cell in zip(planned, runs, strict=True):
        shares = np.array([not_drafting(run) for run in of_cell])
        if np.isfinite(shares).all():
            queued_s, after_s, share = np.median(shares, axis=0)
            case = ", ".join(f"{key} = {value:g}" for key, value in cell.case.items())
            rows.append((case, number(1e6 * queued_s), number(1e6 * after_s), f"{share:.2%}"))
    print_table(
        "the worker's time that is not drafting, between two drafts",
        ("case", "queued, us", "after, us", "of S"),
        rows,
    )


def print_by_drafters(name: str, outcomes: Sequence[Outcome]) -> None:
    """Print the errors of the cells of each number of drafters, where there are several."""
    groups: dict[tuple[float, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.case.get("M", 1), outcome.quantity), []).append(outcome)
    rows = []
    for (drafters, quantity), of_group in sorted(groups.items()):
        errors, left = ([abs(of(outcome)) for outcome in of_group] for of in (_error, _mechanism))
        figures = (np.mean(errors), max(errors), np.mean(left), max(left))
        rows.append((f"{drafters:g}", quantity, str(len(of_group)), *(f"{figure:.2%}" for figure in figures)))
    headings = ("M", "quantity", "cells", "error, mean", "worst", "mechanism, mean", "worst")
    print_table(f"{name}: absolute errors by drafters", headings, rows)


def _error(outcome: Outcome) -> float:
    return outcome.error


def _mechanism(outcome: Outcome) -> float:
    return outcome.mechanism


def print_errors(quantity: str, outcomes: Sequence[Outcome]) -> int:
    """Print mean and worst errors of a quantity, and whether they reach the aims; 1 where the prediction does not.

    Whose runs are further apart than the worst error may be tells nothing about that: the host was another one.
    """
    of_quantity = [outcome for outcome in outcomes if outcome.quantity == quantity]

    def said(of: Callable[[Outcome], float], cells: Sequence[Outcome]) -> tuple[float, float]:
        errors = [abs(of(outcome)) for outcome in cells]
        return float(np.mean(errors)), max(errors)

    (mean, worst), (left, worst_left) = said(_error, of_quantity), said(_mechanism, of_quantity)
    host = float(np.mean([outcome.host for outcome in of_quantity]))
    unexplained = max(abs(off) / outcome.whole for outcome in of_quantity for off in outcome.unexplained)
    remark(
        f"{quantity}: mean absolute error {mean:.2%}, worst {worst:.2%}; mechanism {left:.2%}, worst {worst_left:.2%}; "
        f"runs of one cell differ by {host:.2%}; all of a run played back leaves {unexplained:.3%}"
    )
    steady = [outcome for outcome in of_quantity if outcome.host <= WORST_AIM]
    if not steady:
        remark(f"{quantity}: no cell's runs agree within {WORST_AIM:.0%}: this host cannot tell")
        return 1
    aims = f"{quantity}: aims {MEAN_AIM:.0%} on average and {WORST_AIM:.0%} at worst"
    among = f"{len(steady)} of {len(of_quantity)} cells whose runs agree within {WORST_AIM:.0%}"
    for what, of in (("mechanism", _mechanism), ("prediction", _error)):
        mean, worst = said(of, steady)
        is_met = mean <= MEAN_AIM and worst <= WORST_AIM
        remark(f"{aims}, {what}: {'met' if is_met else 'missed'} with {mean:.2%} and {worst:.2%} in {among}")
    return int(not is_met)
