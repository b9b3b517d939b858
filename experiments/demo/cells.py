"""The demo's cells, and its size: replayed targets at two verification times, a co-located and a standalone target."""

from typing import Any

import msgspec
import numpy as np

from specfleet.calibration.measurements import Effort
from specfleet.experiments.sweep.findings import COUNT
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.star import star_inputs
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

TARGETS = "targets"  # the varied key beside their number: of which kind they are
DEPTH = 5
PROMPT_TOKENS, NEW_TOKENS = 128, 48
RETURN_OVER_SERVICE = (1.6, 3.6)  # Z / S of the two kinds of replayed targets: N_full = 3 and 5
ORDER_SEED = 1
BASELINES: dict[str, dict[str, Any]] = {"co-located": {"place": "target"}, "standalone": {"count": 0}}
PASS_STAGES, ONCE_STAGES = 2, 2  # of a calibration: those of each pass, and acceptance and links


class DemoEffort(msgspec.Struct, frozen=True):
    """Size of a demo: what to calibrate, which N to run for each of RETURN_OVER_SERVICE, and how often."""

    calibration: Effort
    counts: tuple[tuple[int, ...], ...]
    passes: int

    @property
    def stages(self) -> int:
        """Number of stages that the progress bar counts: parts of the calibration, runs, simulation, comparisons."""
        cells = sum(map(len, self.counts)) + len(BASELINES)
        return PASS_STAGES * (self.passes + 1) + ONCE_STAGES + cells * (self.passes + 1) + 1


CALIBRATION = Effort(
    requests=6, prompts=40, longest_gap_s=0.03, gap_rounds=40, loads=(2,), saturated_rounds=150, loaded_rounds=100,
    payloads_bytes=(64, 16 * 1024), pings=20, sharing_requests=6,
)  # fmt: skip
FULL = DemoEffort(CALIBRATION, ((1, 2, 3, 4, 6), (1, 3, 5, 6, 7)), 2)
SHORT = DemoEffort(CALIBRATION, ((1, 3, 4), (1, 5)), 2)


def calibration_scenario() -> Scenario:
    """The demo pair on calibration prompts."""
    return demo_scenario("demo calibration", prompts="demo/calibration")


def demo_scenario(name: str, prompts: str = "demo/evaluation", requests: int = 1, **tables: Any) -> Scenario:
    """The demo pair; a run's requests are those of all its simulations, too."""
    workload = {"prompts": prompts, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS}
    drafters = {"depth": DEPTH} | tables.pop("drafters", {})
    content = {"name": name, "drafters": drafters, "workload": workload | {"requests": requests, "seed": 0}}
    return make_scenario(content | tables)


def planned_cells(profile: HardwareProfile, effort: DemoEffort) -> list[tuple[dict[str, Any], Scenario]]:
    """Return the cells, as a sweep takes them, with the scenarios that the engine runs: without a profile.

    `profile`: fixes the verification times of replayed targets, which stand for separate accelerators.
    """
    scenarios, requests = [], effort.calibration.prompts  # in pairs, one of each calibrates, and no half is left out
    for ratio, counts in zip(RETURN_OVER_SERVICE, effort.counts, strict=True):
        time = replayed_time(profile, ratio)
        name = f"replayed-{1000 * time.base_s:.1f}ms"
        # Such a target is bound by memory: one token takes it as long as a few, a prefill not much longer.
        replayed = {"kind": "replayed", "verify": time}
        scenarios += [demo_scenario(name, requests=requests, verifiers=replayed | {"count": N}) for N in counts]
    for name, drafters in BASELINES.items():
        scenarios.append(demo_scenario(name, requests=requests, drafters=drafters, verifiers={"max_num_seqs": 1}))
    return [({COUNT: scenario.verifiers.count, TARGETS: scenario.name}, scenario) for scenario in scenarios]


def replayed_time(profile: HardwareProfile, ratio: float) -> StepTime:
    """Verification time that makes Z / S equal to `ratio` on this host, from the profile alone; it has no spread."""
    inputs = star_inputs(resolve(demo_scenario("sizing", profile=profile)))
    link_s = inputs.return_s - inputs.verify_s
    return StepTime(base_s=round(ratio * inputs.service_s - link_s, 4))


def in_pass(cells: int, number: int) -> list[int]:
    """Return the places of all cells in the random order of that pass, which is the same in every demo."""
    return np.random.default_rng([ORDER_SEED, number]).permutation(cells).tolist()
