"""The demo: calibrate the demo pair here, then, on other prompts, run N = 1, 2, ... in both worlds, compare, draw.

The order is the argument: the profile is written first, from calibration prompts; it fixes the two verification times
of the replayed targets; only then do engine and simulation run the same scenarios on evaluation prompts (law 7).
The simulation is run twice: blind, with the profile alone; and at the pace that the host's control computation had
during the engine's run, because a shared host is slower at one time than at another.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from calibrate.run import QUICK, STAGES, Effort, calibrate
from engine.serve import serve
from experiments.compare import Comparison, compare_metrics, summarise
from experiments.demo_report import draw_demo, tell
from experiments.replicate import replicate
from sim.predict import predict, star_inputs
from sim.run import simulate
from specfleet.metrics import measure
from specfleet.pace import paces_of
from specfleet.profile import HardwareProfile, StepTime, write_profile
from specfleet.records import Run, write_run
from specfleet.replay import replay
from specfleet.scenario import Scenario, make_scenario, profile_of
from specfleet.window import Metric

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


class DemoResult(msgspec.Struct, frozen=True):
    """The comparison at the measured pace and the blind one, and lines that say what was found and where it is."""

    comparison: Comparison
    blind: Comparison
    story: list[str]


def run_demo(folder: Path, effort: DemoEffort, report: Callable[[str], None]) -> DemoResult:
    """Run the whole demo into `folder`; `report` is told the name of each stage as it begins."""
    folder.mkdir(parents=True, exist_ok=True)
    base = calibration_scenario()
    profile = calibrate(base, folder / "stories", effort.calibration, report)
    write_profile(profile, folder / "profile.json")

    cells = [
        run_cell(case, scenario, folder, report)
        for case, scenario in interleaved(replayed_cells(profile, effort), real_cells(profile, effort))
    ]
    report("co-located and standalone baselines")
    baselines = [run_cell(case, scenario, folder, report) for case, scenario in baseline_cells(profile, effort)]
    comparison, blind = (
        summarise(
            (row for cell in cells for row in compare_metrics(cell.case, getattr(cell, simulated), cell.engine)),
            profile.digest(),
        )
        for simulated in ("sim", "blind")
    )
    for name, content in (("comparison", comparison), ("comparison-blind", blind)):
        (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    pictures = draw_demo(folder, profile, cells, baselines)
    return DemoResult(comparison, blind, tell(folder, profile, cells, baselines, comparison, blind, pictures))


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
    inputs = star_inputs(demo_scenario(profile, "sizing", 1))
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
    """Order all cells so that a slow spell of the machine does not hit one kind, or one end of a curve, alone."""
    cells = [cell for kind in kinds for cell in kind]
    stride = next(step for step in (7, 5, 3, 2, 1) if math.gcd(step, len(cells)) == 1)
    return [cells[(index * stride) % len(cells)] for index in range(len(cells))]


def run_cell(case: dict[str, Any], scenario: Scenario, folder: Path, report: Callable[[str], None]) -> Cell:
    """Run one scenario in both worlds, keep its records, and replay both logs (law 1)."""
    name = f"{scenario.name}, N = {scenario.verifiers.count}"
    report(name)
    engine_run = serve(scenario, folder / "stories").run
    paces = paces_of(engine_run, profile_of(scenario).control_s)
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
