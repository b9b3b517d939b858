"""The demo's cells: their scenarios, and their results in both worlds."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from calibrate.run import QUICK, STAGES, Effort
from experiments.compare.compare import ComparedQuantity, Reruns, compare_reruns, replicate, simulated_reruns
from fleet.records.metrics.window import Metric
from fleet.records.run import Run
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime
from sim.predict import star_inputs

DEPTH = 5
PROMPT_TOKENS, NEW_TOKENS = 128, 48
RETURN_OVER_SERVICE = (1.6, 4.6)  # Z / S of the two kinds of replayed targets: N_full = 3 and 6
SIM_SEEDS = 20
ORDER_SEED = 1


class DemoEffort(msgspec.Struct, frozen=True):
    """Size of a demo: what to calibrate, which N to run, and how often."""

    calibration: Effort
    replayed_counts: tuple[int, ...]
    real_counts: tuple[int, ...]
    passes: int

    @property
    def requests(self) -> int:
        """Requests of each run: prompts come in pairs, one of each calibrates, and no half is left out."""
        return self.calibration.prompts

    @property
    def stages(self) -> int:
        """Number of stages that the progress bar counts."""
        cells = len(RETURN_OVER_SERVICE) * len(self.replayed_counts) + len(self.real_counts) + 2
        return len(STAGES) + cells * (self.passes + 1)


FULL = DemoEffort(Effort(), tuple(range(1, 9)), (1, 2), 3)
SHORT = DemoEffort(QUICK, (1, 3, 6), (1,), 3)


class Planned(msgspec.Struct, frozen=True):
    """A cell before it is run: its name and its scenario. `kind`: replayed, real or baseline."""

    kind: str
    case: dict[str, Any]
    scenario: Scenario

    @property
    def name(self) -> str:
        """Name of the cell."""
        return f"{self.scenario.name}, N = {self.scenario.verifiers.count}"

    @property
    def slug(self) -> str:
        """The name, fit for a file."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.name).replace("--", "-")


class DemoCell(msgspec.Struct, frozen=True):
    """A cell, the engine's runs of it, one a pass, and its simulations.

    `blind`: simulated from the profile alone. `rows`: its errors, quantity by quantity.
    """

    planned: Planned
    runs: list[Run]
    reruns: Reruns
    blind: dict[str, Metric]
    rows: list[ComparedQuantity]

    @property
    def case(self) -> dict[str, Any]:
        """What names the cell."""
        return self.planned.case

    @property
    def scenario(self) -> Scenario:
        """Its scenario."""
        return self.planned.scenario

    def steady(self, quantity: str) -> bool | None:
        """Whether its runs agree well enough on a quantity; None if unknown."""
        return next((row.steady for row in self.rows if row.quantity == quantity), None)

    def measured(self, quantity: str) -> float:
        """The median of a quantity over the engine's runs."""
        return float(np.median([run[quantity].value for run in self.reruns.engine]))


def calibration_scenario() -> Scenario:
    """The demo pair on calibration prompts."""
    return make_scenario(
        {
            "name": "demo calibration",
            "drafters": {"depth": DEPTH},
            "workload": {"prompts": "demo/calibration", "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS},
        }
    )


def demo_scenario(profile: HardwareProfile, name: str, requests: int, **tables: Any) -> Scenario:
    """The demo pair on evaluation prompts, with the calibrated profile."""
    return make_scenario(
        {
            "name": name,
            "profile": profile,
            "drafters": {"depth": DEPTH} | tables.pop("drafters", {}),
            "workload": {
                "prompts": "demo/evaluation",
                "prompt_tokens": PROMPT_TOKENS,
                "new_tokens": NEW_TOKENS,
                "requests": requests,
            },
        }
        | tables
    )


def replayed_time(profile: HardwareProfile, ratio: float) -> StepTime:
    """Verification time that makes Z / S equal to `ratio` on this host, from the profile alone; it has no spread."""
    inputs = star_inputs(resolve(demo_scenario(profile, "sizing", 1)))
    link_s = inputs.return_s - inputs.verify_s
    return StepTime(base_s=ratio * inputs.service_s - link_s)


def replayed_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[Planned]:
    """Yield the cells with replayed targets, which stand for separate accelerators."""
    for ratio in RETURN_OVER_SERVICE:
        time = replayed_time(profile, ratio)
        # Such a target is bound by memory: one token takes it as long as a few, a prefill not much longer.
        verifiers = {"kind": "replayed", "verify": time}
        for count in effort.replayed_counts:
            name = f"replayed targets, t_v = {1000 * time.base_s:.1f} ms"
            scenario = demo_scenario(profile, name, effort.requests, verifiers=verifiers | {"count": count})
            yield Planned("replayed", {"targets": name, "N": count}, scenario)


def real_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[Planned]:
    """Yield the cells with targets that run the model here; all stations share this host."""
    name = "real time-sliced targets"
    for count in effort.real_counts:
        scenario = demo_scenario(
            profile, name, effort.requests,
            devices={"host": {"sharing": "turns"}}, drafters={"device": "host"},
            verifiers={"count": count, "device": "host"},
        )  # fmt: skip
        yield Planned("real", {"targets": name, "N": count}, scenario)


def baseline_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[Planned]:
    """Yield co-located speculation in one process, and the standalone target."""
    host = {"devices": {"host": {"sharing": "one-process"}}}
    for name, drafters in (("co-located", {"device": "host"}), ("standalone", {"count": 0})):
        scenario = demo_scenario(
            profile, name, effort.requests, drafters=drafters, verifiers={"device": "host"}, **host
        )
        yield Planned("baseline", {"targets": name, "N": 1}, scenario)


def in_passes(cells: Sequence[Planned], passes: int) -> list[Planned]:
    """Return every cell so often, in a random order over all of them that is the same each time.

    So a slow quarter of an hour of the machine hits no kind of cells, and no end of a curve, alone.
    """
    order = np.random.default_rng(ORDER_SEED).permutation(passes * len(cells))
    return [cells[number % len(cells)] for number in order]


def simulated_cell(planned: Planned, runs: list[Run]) -> DemoCell:
    """Simulate a cell, and hold what comes out against the engine's runs of it."""
    reruns = simulated_reruns(planned.scenario, runs)
    blind = replicate(planned.scenario, SIM_SEEDS)
    return DemoCell(planned, runs, reruns, blind, compare_reruns(planned.case, blind, reruns))
