"""The demo's cells: their scenarios, and what both worlds make of one."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from calibrate.run import QUICK, STAGES, Effort
from engine.runtime.serve import serve
from experiments.replicate import replicate
from fleet.records.metrics import measure
from fleet.records.paces import paces_of
from fleet.records.replay import replay
from fleet.records.run import Run, write_run
from fleet.records.window import Metric
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime
from sim.predict import predict, star_inputs
from sim.run import simulate

DEPTH = 5
PROMPT_TOKENS, NEW_TOKENS = 128, 48
RETURN_OVER_SERVICE = (1.6, 4.6)  # Z / S of the two kinds of replayed targets: N_full = 3 and 6
SIM_SEEDS = 20


class DemoEffort(msgspec.Struct, frozen=True):
    """How large a demo: what to calibrate, which N to run, on how many requests."""

    calibration: Effort
    replayed_counts: tuple[int, ...]
    real_counts: tuple[int, ...]
    requests: int
    saturated_requests: int  # where the drafter is busy, a request takes less time

    @property
    def stages(self) -> int:
        """Number of stages that the progress bar counts."""
        return len(STAGES) + len(RETURN_OVER_SERVICE) * len(self.replayed_counts) + len(self.real_counts) + 3


FULL = DemoEffort(Effort(), tuple(range(1, 9)), (1, 2), 48, 72)
SHORT = DemoEffort(QUICK, (1, 3, 6), (1,), 24, 48)


class Cell(msgspec.Struct, frozen=True):
    """One scenario of the demo and what both worlds made of it.

    `blind`: simulated from the profile alone. `sim`: simulated at the pace that the host had while the engine ran.
    """

    case: dict[str, Any]
    scenario: Scenario
    engine: dict[str, Metric]
    sim: dict[str, Metric]
    blind: dict[str, Metric]
    engine_run: Run
    contradictions: list[str]


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
    inputs = star_inputs(settle(demo_scenario(profile, "sizing", 1)))
    link_s = inputs.return_s - inputs.verify_s
    return StepTime(base_s=ratio * inputs.service_s - link_s)


def replayed_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """Yield the cells whose targets stand for accelerators of their own."""
    for ratio in RETURN_OVER_SERVICE:
        time = replayed_time(profile, ratio)
        # Such a target is bound by memory: one token takes it as long as a few, a prefill not much longer.
        verifiers = {"kind": "replayed", "verify": time, "prefill": time, "decode": time}
        for count in effort.replayed_counts:
            name = f"replayed targets, t_v = {1000 * time.base_s:.1f} ms"
            scenario = demo_scenario(profile, name, effort.requests, verifiers=verifiers | {"count": count})
            if count >= predict(scenario).N_full:
                more = msgspec.structs.replace(scenario.workload, requests=effort.saturated_requests)
                scenario = msgspec.structs.replace(scenario, workload=more)
            yield {"targets": name, "N": count}, scenario


def real_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """Yield the cells whose targets run the model here; all stations take turns on this host."""
    name = "real targets, by turns"
    for count in effort.real_counts:
        yield (
            {"targets": name, "N": count},
            demo_scenario(
                profile, name, effort.requests,
                devices={"host": {"sharing": "turns"}}, drafters={"device": "host"},
                verifiers={"count": count, "device": "host"},
            ),
        )  # fmt: skip


def baseline_cells(profile: HardwareProfile, effort: DemoEffort) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """Yield co-located speculation in one process, and the standalone target."""
    host = {"devices": {"host": {"sharing": "one-process"}}}
    for name, drafters in (("co-located", {"device": "host"}), ("standalone", {"count": 0})):
        yield (
            {"targets": name, "N": 1},
            demo_scenario(profile, name, effort.requests, drafters=drafters, verifiers={"device": "host"}, **host),
        )


def interleaved(*kinds: Iterator[tuple[dict[str, Any], Scenario]]) -> list[tuple[dict[str, Any], Scenario]]:
    """Order all cells so that slow minutes of the machine do not hit one kind, or one end of a curve, alone."""
    cells = [cell for kind in kinds for cell in kind]
    stride = next(step for step in (7, 5, 3, 2, 1) if math.gcd(step, len(cells)) == 1)
    return [cells[(index * stride) % len(cells)] for index in range(len(cells))]


def run_demo_cell(case: dict[str, Any], scenario: Scenario, folder: Path, report: Callable[[str], None]) -> Cell:
    """Run one scenario in both worlds, keep its records, and replay both logs (law 1)."""
    name = f"{scenario.name}, N = {scenario.verifiers.count}"
    report(name)
    engine_run = serve(scenario, folder / "continuations").run
    paces = paces_of(engine_run, settle(scenario).control_s)
    sim_run = simulate(scenario, paces)
    slug = "".join(letter if letter.isalnum() else "-" for letter in name).replace("--", "-")
    for world, run in (("engine", engine_run), ("sim", sim_run)):
        write_run(run, folder / "records" / f"{slug}.{world}.parquet")
    return Cell(
        case,
        scenario,
        measure(engine_run),
        replicate(scenario, SIM_SEEDS, paces),
        replicate(scenario, SIM_SEEDS, {}),
        engine_run,
        [*replay(engine_run), *replay(sim_run)],
    )
