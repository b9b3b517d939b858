"""Run every shipped scenario here, replay its log, and hold its simulation against it; 1 where one is too far off."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engine.launch.serve import serve
from experiments.compare import Row, compare_reruns, summarise
from experiments.replayed.host import later
from experiments.replayed.running import measured_hosts
from experiments.reruns import replicate, simulated_reruns
from experiments.shipped.here import fleet_here, run_batch
from experiments.terminal.exits import keeping
from experiments.terminal.numbers import positive
from experiments.terminal.printing import number, print_table, progress, remark
from fleet.data.shipped import shipped_scenarios
from fleet.files import check_folder, write_file
from fleet.records.replay import replay
from fleet.records.run import Run, write_run
from fleet.scenario.reading import read_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle

SECONDS = 30.0
HOST_S = 5.0  # of each fleet that its replayed stations are measured by
SEEDS = 5  # of the blind prediction
JUDGED = "throughput"
MECHANISM_AIM, PREDICTION_AIM = 0.02, 0.1


class Shown(msgspec.Struct, frozen=True):
    """What one run showed: what ran, by how many requests, what its log contradicts, and its comparison's rows."""

    stations: str
    requests: int
    contradictions: list[str]
    rows: list[Row]

    @property
    def judged(self) -> Row:
        """The row that its scenario is judged by."""
        return next(row for row in self.rows if row.quantity == JUDGED)

    @property
    def mechanism(self) -> float:
        """What is left where the run's own steps and acceptance are played back."""
        assert self.judged.mechanism is not None
        return self.judged.mechanism.value

    @property
    def prediction(self) -> float:
        """The error of the prediction."""
        assert self.judged.parameters is not None
        return self.judged.parameters.value

    @property
    def beyond(self) -> bool:
        """Whether its log contradicts itself, or one of its errors is larger than aimed at."""
        is_near = abs(self.mechanism) <= MECHANISM_AIM and abs(self.prediction) <= PREDICTION_AIM  # not where unknown
        return bool(self.contradictions) or not is_near


def main() -> int:
    """Go over all, or those that are named; print a line of each, and leave runs and comparisons in the folder."""
    names = list(shipped_scenarios())
    parser = argparse.ArgumentParser(prog="python -m experiments.shipped", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/shipped"))
    parser.add_argument("--only", nargs="*", choices=names, help="these; else all")
    parser.add_argument("--seconds", type=positive, default=SECONDS, help="of each run, about")
    options = parser.parse_args()
    check_folder(options.out)
    with keeping(options.out):
        shown = run_all(options.only or names, options.seconds, options.out)
        print_shown(shown)
        for name, of_name in shown.items():
            for contradiction in of_name.contradictions:
                remark(f"{name}: {contradiction}")
    beyond = [name for name, of_name in shown.items() if of_name.beyond]
    aims = f"the log replays, {MECHANISM_AIM:.0%} by mechanism and {PREDICTION_AIM:.0%} predicted, in {JUDGED}"
    remark(f"aims ({aims}): {'missed by ' + ', '.join(beyond) if beyond else 'met by all'}")
    return int(bool(beyond))


def run_all(names: Sequence[str], seconds: float, out: Path) -> dict[str, Shown]:
    """Measure the host's replayed stations, run these, one after another; return what each showed."""
    shown, hosts = {}, measured_hosts(HOST_S, out)
    with progress("shipped scenarios", len(names)) as advance:
        for name in names:
            advance(name)
            scenario = read_scenario(shipped_scenarios()[name], base=Path())
            if scenario.batch is None:
                host = hosts.of(scenario)
                here = fleet_here(scenario, host.profile, seconds)
                shown[name] = show(here, serve(here).run, host.late_s, out / name)
            else:
                shown[name] = show(*run_batch(scenario, seconds, out / name), 0.0, out / name)
    return shown


def show(scenario: Scenario, run: Run, late_s: float, folder: Path) -> Shown:
    """Hold a run against its simulations, by the times that `scenario` has; leave both in the folder.

    `late_s`: by how much replayed drafts end late.
    """
    write_run(run, folder / "engine.parquet")
    replayed = scenario.verifiers.kind == "replayed"
    blind = replicate(later(scenario, late_s) if replayed else scenario, SEEDS)
    rows = compare_reruns({"scenario": scenario.name}, blind, simulated_reruns(scenario, [run]))
    comparison = summarise(rows, settle(scenario).profile_digest)
    write_file(folder / "comparison.json", msgspec.json.format(msgspec.json.encode(comparison)))
    return Shown("replayed" if replayed else "the demo pair", scenario.workload.requests, replay(run), rows)


def print_shown(shown: Mapping[str, Shown]) -> None:
    """Print a line of each."""
    rows = [
        (
            name, of_name.stations, str(of_name.requests), "no" if of_name.contradictions else "yes",
            number(of_name.judged.engine), f"{of_name.mechanism:+.2%}",
            f"{of_name.prediction:+.2%}",
            "missed" if of_name.beyond else "met",
        )
        for name, of_name in shown.items()
    ]  # fmt: skip
    headings = ("scenario", "stations", "requests", "log replays", "tokens/s", "mechanism", "predicted", "aims")
    print_table("every shipped scenario as processes, and its simulation's errors", headings, rows, texts=2)
