"""The demo's cells: their scenarios, and their results in both worlds."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from specfleet.calibration.effort import Effort
from specfleet.experiments.compare.compare import ComparedQuantity, Reruns, compare_reruns, replicate, simulated_reruns
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.predict import star_inputs

DEPTH = 5
PROMPT_TOKENS, NEW_TOKENS = 128, 48
RETURN_OVER_SERVICE = (1.6, 3.6)  # Z / S of the two kinds of replayed targets: N_full = 3 and 5
SIM_SEEDS = 20
ORDER_SEED = 1


class DemoEffort(msgspec.Struct, frozen=True):
    """Size of a demo: what to calibrate, which N to run for each of RETURN_OVER_SERVICE, and how often."""

    calibration: Effort
    counts: tuple[tuple[int, ...], ...]
    passes: int

    @property
    def requests(self) -> int:
        """Requests of each run: prompts come in pairs, one of each calibrates, and no half is left out."""
        return self.calibration.prompts

    @property
    def stages(self) -> int:
        """Number of stages that the progress bar counts: parts of the calibration, runs, simulations."""
        cells = sum(map(len, self.counts)) + len(BASELINES)
        return PASS_STAGES * (self.passes + 1) + ONCE_STAGES + cells * (self.passes + 1)


BASELINES: dict[str, dict[str, Any]] = {"co-located": {"place": "target"}, "standalone": {"count": 0}}
PASS_STAGES, ONCE_STAGES = 3, 3  # of a calibration: those of each pass, and continuations, acceptance and links
CALIBRATION = Effort(
    depths=(3, 5, 7), contexts=(128, 152, 176), repeats=6, prompts=40, longest_gap_s=0.03, gap_rounds=40,
    loads=(2,), saturated_rounds=150, loaded_rounds=100, payloads_bytes=(64, 16 * 1024), pings=20, sharing_requests=6,
)  # fmt: skip
FULL = DemoEffort(CALIBRATION, ((1, 2, 3, 4, 6), (1, 3, 5, 6, 7)), 2)
SHORT = DemoEffort(CALIBRATION, ((1, 3, 4), (1, 5)), 2)


def cell_name(scenario: Scenario) -> str:
    """Return the name of the cell with such a scenario."""
    return f"{scenario.name}, N = {scenario.verifiers.count}"


def slug_of(scenario: Scenario) -> str:
    """Return the name of a cell, fit for a file."""
    return "".join(letter if letter.isalnum() else "-" for letter in cell_name(scenario)).replace("--", "-")


class DemoCell(msgspec.Struct, frozen=True):
    """A cell, the engine's runs of it, one a pass, and its simulations.

    - `scenario`: that of the simulations, with the profile.
    - `blind`: simulated from the profile alone.
    - `rows`: its errors, quantity by quantity.
    """

    scenario: Scenario
    runs: list[Run]
    reruns: Reruns
    blind: dict[str, Metric]
    rows: list[ComparedQuantity]

    @property
    def targets(self) -> int:
        """N, the number of its targets."""
        return self.scenario.verifiers.count

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


def demo_scenario(name: str, requests: int, **tables: Any) -> Scenario:
    """The demo pair on evaluation prompts."""
    return make_scenario(
        {
            "name": name,
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
    inputs = star_inputs(resolve(demo_scenario("sizing", 1, profile=profile)))
    link_s = inputs.return_s - inputs.verify_s
    return StepTime(base_s=round(ratio * inputs.service_s - link_s, 4))


def replayed_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[Scenario]:
    """Yield the cells with replayed targets, which stand for separate accelerators."""
    for ratio, counts in zip(RETURN_OVER_SERVICE, effort.counts, strict=True):
        time = replayed_time(profile, ratio)
        # Such a target is bound by memory: one token takes it as long as a few, a prefill not much longer.
        verifiers = {"kind": "replayed", "verify": time}
        for count in counts:
            name = f"replayed targets, t_v = {1000 * time.base_s:.1f} ms"
            yield demo_scenario(name, effort.requests, verifiers=verifiers | {"count": count})


def baseline_cells(effort: DemoEffort) -> Iterator[Scenario]:
    """Yield speculation on the target's own device, and the standalone target."""
    for name, drafters in BASELINES.items():
        yield demo_scenario(name, effort.requests, drafters=drafters, verifiers={"max_num_seqs": 1})


def in_pass(cells: Sequence[Scenario], number: int) -> list[Scenario]:
    """Return all cells in the random order of that pass, which is the same in every demo."""
    order = np.random.default_rng([ORDER_SEED, number]).permutation(len(cells))
    return [cells[place] for place in order]


def simulated_cell(planned: Scenario, runs: list[Run], profile: HardwareProfile) -> DemoCell:
    """Simulate a cell with a profile, and hold what comes out against the engine's runs of it."""
    scenario = msgspec.structs.replace(planned, profile=profile)
    reruns, blind = simulated_reruns(scenario, runs), replicate(scenario, SIM_SEEDS)
    case = {"targets": scenario.name, "N": scenario.verifiers.count}
    return DemoCell(scenario, runs, reruns, blind, compare_reruns(case, blind, reruns))
