"""What the demo found: at most eight lines to print, and more for the page."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from specfleet.experiments.compare.compare import ComparedQuantity
from specfleet.experiments.demo.cells import DemoCell
from specfleet.experiments.knee import level_of
from specfleet.fleet.records.delayed import delayed_share
from specfleet.fleet.records.overheads import late_starts
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.shown import number
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.predict import predict

JUDGED = ("rounds_per_s", "throughput")
UNSTEADY = 0.05  # difference of two runs of a cell from which the host counts as unsteady
AS_GOOD = 0.03  # a blind error that is small on any host ...
OVER_HOST = 1.25  # ... or this many times the difference of two runs


class Errors(NamedTuple):
    """Errors over cells and quantities, as shares: means, and the worst cell's where named so.

    All are of one run: by how much it is off its prediction, and off another run of its cell.
    """

    blind: float
    blind_worst: float
    mechanism: float
    mechanism_worst: float
    host: float


def findings(cells: Sequence[DemoCell]) -> list[str]:
    """Return the lines to print."""
    errors = errors_of(rows_of(cells))
    blind = f"{errors.blind:.1%} from the profile alone (worst {errors.blind_worst:.1%})"
    own = f"{errors.mechanism:.1%} from its own steps and acceptance (mechanism; worst {errors.mechanism_worst:.1%})"
    lost = float(np.mean([delayed_share(run) for cell in cells for run in cell.runs]))
    baselines = [cell for cell in cells if cell.scenario.verifiers.kind != "replayed"]
    return [
        *(line for case in replayed_cases(cells) for line in (full_line(case), throughput_line(case))),
        "; ".join(f"{cell.scenario.name}, tokens/s: {both(cell)}" for cell in baselines),
        f"error of a run's rounds/s and tokens/s: {blind}; {own}",
        f"host: a run and its rerun differ by {errors.host:.1%}; other work delayed steps by {lost:.1%} of their time",
        verdict(errors),
    ]


def replayed_cases(cells: Sequence[DemoCell]) -> list[list[DemoCell]]:
    """Return the cells with replayed targets by verification time, each by N."""
    replayed = [cell for cell in cells if cell.scenario.verifiers.kind == "replayed"]
    names = dict.fromkeys(cell.scenario.name for cell in replayed)
    by_N = sorted(replayed, key=lambda cell: cell.targets)
    return [[cell for cell in by_N if cell.scenario.name == name] for name in names]


def full_line(case: Sequence[DemoCell]) -> str:
    """Say N_full by the equation and by two measures: rounds a second, and the drafter's load, on their plateaus."""
    name, equations = case[0].scenario.name, predict(case[0].scenario)
    return (
        f"{name}: N_full = {equations.N_full} by equation (12), N_max = {equations.N_max}; measured: rounds/s are "
        f"level from {level_text(case, 'rounds_per_s')} on, drafter load from {level_text(case, 'load')} on "
        f"(at most {case[-1].measured('load'):.0%})"
    )


def level_text(case: Sequence[DemoCell], quantity: str) -> str:
    """Say N_full as measured by a quantity, with the range of the passes where they differ."""
    low, high = level_range(case, quantity)
    return f"N = {level_from(case, quantity)}" + (f" ({low} to {high} by pass)" if low < high else "")


def level_range(case: Sequence[DemoCell], quantity: str) -> tuple[int, int]:
    """Return the least and the largest N_full that single passes give."""
    passes = zip(*([run[quantity].value for run in cell.reruns.engine] for cell in case), strict=True)
    found = [level_of([cell.targets for cell in case], values) for values in passes]
    return min(found), max(found)


def level_from(case: Sequence[DemoCell], quantity: str) -> int:
    """Return the least N at which a quantity has 98 % of its value at most targets: N_full as measured."""
    return level_of([cell.targets for cell in case], [cell.measured(quantity) for cell in case])


def throughput_line(case: Sequence[DemoCell]) -> str:
    """Say the throughput in both worlds at the knee and at most targets."""
    N_full = predict(case[0].scenario).N_full
    knee = next((cell for cell in case if cell.targets >= N_full), case[-1])
    shown = [knee, *(case[-1:] if case[-1] is not knee else [])]
    return "  tokens/s: " + "; ".join(f"N = {cell.targets}: {both(cell)}" for cell in shown)


def both(cell: DemoCell) -> str:
    """A cell's throughput in both worlds."""
    return f"simulated {number(cell.blind['throughput'].value)}, measured {number(cell.measured('throughput'))}"


def verdict(errors: Errors) -> str:
    """Say how far the prediction can be trusted."""
    queueing = f"the queueing model is within {errors.mechanism:.1%}"
    if errors.host >= UNSTEADY:
        return f"unsteady host: reruns differ by {errors.host:.0%}; {queueing}; repeat on a quiet host"
    if errors.blind <= max(AS_GOOD, OVER_HOST * errors.host):
        return f"steady host; the profile predicts runs as well as a rerun does, or within {AS_GOOD:.0%}; {queueing}"
    return f"steady host, and the profile's step times are not those of the runs ({errors.blind:.1%}); {queueing}"


def rows_of(cells: Sequence[DemoCell]) -> list[ComparedQuantity]:
    """Return the judged rows that were rerun and played back."""
    rows = [row for cell in cells for row in cell.rows if row.quantity in JUDGED]
    return [row for row in rows if None not in (row.mechanism, row.parameters, row.host)]


def errors_of(rows: Sequence[ComparedQuantity]) -> Errors:
    """Return the means of the rows' absolute errors."""
    blind, mechanism = ([getattr(row, name).absolute for row in rows] for name in ("parameters", "mechanism"))
    host = float(np.mean([row.host.absolute for row in rows if row.host is not None]))
    return Errors(float(np.mean(blind)), max(blind), float(np.mean(mechanism)), max(mechanism), host)


def contradictions_in(runs: Sequence[Run]) -> list[str]:
    """Return what the logs of some runs say that fresh stations would not have done (law 1)."""
    return [line for run in runs for line in replay(run)]


def details(
    profile: HardwareProfile, cells: Sequence[DemoCell], contradictions: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield facts for the page, by name."""
    started = [run.header.started_unix_s for cell in cells for run in cell.runs]
    late = [late_starts(run) for cell in cells for run in cell.runs]
    yield "profile", f"{profile.digest()}, written {profile.provenance['written']}"
    yield "steps of the calibration that the host delayed", f"{profile.measured['delayed_share']:.1%}, left out"
    yield "steps of the calibration, its slowest pass over its quickest", f"+ {profile.measured['passes_differ']:.1%}"
    yield "calibration", "before, between and after the passes of runs; other prompts, other fleets"
    yield "passes of runs", f"over {(max(started) - min(started)) / 60:.1f} minutes"
    yield "logs that were replayed on fresh stations", f"{sum(len(cell.runs) + 1 for cell in cells)}"
    yield "contradictions", "; ".join(contradictions) or "none"
    yield "steps that started late", f"{np.mean(late):.1%} on average, {max(late):.1%} in the worst run"
