"""Measure this host's replayed stations, predict fleets of them, run those, and hold both against each other."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from engine.runtime.serve import serve
from experiments.replayed.cases import CALIBRATED_ON, RATIOS, Host, Hosts, Planned, cells, fleet, table1
from experiments.replayed.chance import chance_of, long_enough, mean_of, simulated_nearby, whole_of
from experiments.replayed.host import host_of, later, not_drafting
from experiments.terminal.exits import keeping
from experiments.terminal.printing import number, print_table, progress, remark
from fleet.files import check_folder, write_file
from fleet.records.metrics import measure
from fleet.records.playback import MECHANISM, PARTS, playback_of
from fleet.records.run import Run, write_run
from fleet.times.profile import write_profile
from sim.run import simulate

JUDGED = ("rounds_per_s", "wait_s")
MEAN_AIM, WORST_AIM = 0.01, 0.03
ORDER_SEED, CALIBRATION_SEED = 1, 7
ROUTED = 2  # drafters of the fleets that show what is other behind a router


class Effort(msgspec.Struct, frozen=True):
    """How long each fleet runs, in seconds, how often, and how much longer at most where chance decides its waits."""

    seconds: float = 5.0
    passes: int = 2
    most_longer: int = 16


SHORT = Effort(2.0, 1, 1)


class Outcome(msgspec.Struct, frozen=True):
    """One quantity of one cell: predicted, and in each run; `played_back`: simulated as `MECHANISM` says.

    `unexplained`: what is off where the run's links and delays are played back, too. `whole`: what an error is relative
    to; the run's own value, or for a tiny wait its round. `chance`: of a run, relative to the same. `paper`: its
    number.
    """

    case: dict[str, Any]
    quantity: str
    predicted: float
    runs: list[float]
    played_back: list[float]
    unexplained: list[float]
    whole: float
    chance: float = 0.0
    paper: float | None = None

    @property
    def measured(self) -> float:
        """The median over the runs."""
        return float(np.median(self.runs))

    @property
    def error(self) -> float:
        """Prediction against the median run."""
        return (self.predicted - self.measured) / self.whole

    @property
    def mechanism(self) -> float:
        """What is left of it where the steps and the acceptance of each run are played back, mean over the runs."""
        left = [played - run for played, run in zip(self.played_back, self.runs, strict=True)]
        return float(np.mean(left)) / self.whole

    @property
    def host(self) -> float:
        """How far the runs are apart, from the least to the largest."""
        return (max(self.runs) - min(self.runs)) / self.whole


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
        hosts = measured_hosts(effort.seconds, options.out)
        of_cells = [long_enough(cell, JUDGED, effort.most_longer) for cell in cells(hosts, effort.seconds)]
        planned = {"cells": of_cells, "table1": list(table1(hosts, effort.seconds))}
        chosen = {name: of_name for name, of_name in planned.items() if options.only in (None, name)}
        beyond = [judge(name, of_name, effort, options.out) for name, of_name in chosen.items()]
    return max(beyond)


def measured_hosts(seconds: float, out: Path) -> Hosts:
    """Run small fleets without and with a router; write what is known of this host's stations by them, and print it."""
    hosts = Hosts(*(host_of(calibration_runs(seconds, drafters)) for drafters in (1, ROUTED)))
    for name, host in msgspec.structs.asdict(hosts).items():
        write_profile(host.profile, out / f"{name}.json")
    print_table(
        hosts.plain.profile.name,
        ("what passes, ms", "without a router", "with one"),
        [
            (what, *(number(1000 * of_host[what]) for of_host in (passing(hosts.plain), passing(hosts.routed))))
            for what in passing(hosts.plain)
        ],
    )
    return hosts


def passing(host: Host) -> dict[str, float]:
    """Name what passes between the steps of a host's stations, in seconds."""
    profile = host.profile
    return {
        "link, one way": profile.link.latency_s,
        "link down before another draft": profile.busy_link.latency_s if profile.busy_link else float("nan"),
        "turnaround": profile.turnaround_s,
        "wake-up": profile.wake_up_s,
        "dispatch": profile.dispatch_s,
        "end of a draft, late": host.late_s,
    }


def calibration_runs(seconds: float, drafters: int) -> list[Run]:
    """Run small fleets with other N and another seed than those that are predicted."""
    runs = []
    said = f"replayed stations of this host, {drafters} drafter{'s' * (drafters > 1)}"
    with progress(said, len(RATIOS) * len(CALIBRATED_ON)) as advance:
        for ratio in RATIOS:
            for count in CALIBRATED_ON:
                advance(f"Z/S = {ratio:g}, N = {count}")
                runs.append(serve(fleet(None, ratio, count, seconds, CALIBRATION_SEED, drafters)).run)
    return runs


def judge(name: str, planned: Sequence[Planned], effort: Effort, out: Path) -> int:
    """Predict, run in an order that mixes all cells, compare, print and write; 1 where R_q is beyond the aims."""
    expected = [simulated_nearby(later(cell.scenario, cell.late_s)) for cell in planned]
    write_file(
        out / f"{name}-predicted.json",
        msgspec.json.encode([(cell.case, mean_of(of_cell)) for cell, of_cell in zip(planned, expected, strict=True)]),
    )
    order = np.random.default_rng(ORDER_SEED).permutation(effort.passes * len(planned))
    runs: list[list[Run]] = [[] for _ in planned]
    with progress(name, len(order)) as advance:
        for place in (int(number) % len(planned) for number in order):
            advance(planned[place].scenario.name)
            run = serve(planned[place].scenario).run
            write_run(run, out / f"{name}-{planned[place].slug}-{len(runs[place]) + 1}.parquet")
            runs[place].append(run)
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


def outcomes_of(cell: Planned, expected: Sequence[dict[str, float]], runs: Sequence[Run]) -> list[Outcome]:
    """Hold what is expected of a cell, the mean over simulations, against its runs."""
    measured = [measure(run) for run in runs]
    played, all_played = (
        [measure(simulate(cell.scenario, playback=playback_of(run, parts))) for run in runs]
        for parts in (MECHANISM, PARTS)
    )
    found, predicted, targets = [], mean_of(expected), cell.scenario.verifiers.count
    round_s = targets / float(np.median([run["rounds_per_s"].value for run in measured]))
    for quantity in JUDGED:
        values, left, again = (
            np.array([metrics[quantity].value for metrics in of_runs]) for of_runs in (measured, played, all_played)
        )
        whole, chance = whole_of(quantity, float(np.median(values)), round_s), chance_of(quantity, expected, targets)
        numbers = values.tolist(), left.tolist(), (again - values).tolist()
        paper = cell.paper.get(quantity)
        found.append(Outcome(cell.case, quantity, predicted[quantity], *numbers, whole, chance, paper))
    return found


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
            turnaround_s, dispatch_s, share = np.median(shares, axis=0)
            case = ", ".join(f"{key} = {value:g}" for key, value in cell.case.items())
            rows.append((case, number(1e6 * turnaround_s), number(1e6 * dispatch_s), f"{share:.2%}"))
    print_table(
        "the worker's time that is not drafting, between two drafts",
        ("case", "turnaround, us", "dispatch, us", "of S"),
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
