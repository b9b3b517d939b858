"""The files of a plan."""

from pathlib import Path

import msgspec

from experiments.draw import draw
from experiments.plan.answer import Plan
from fleet.files import write_file
from fleet.scenario.writing import scenario_lines
from fleet.times.profile import HardwareProfile, write_profile


def write_plan(found: Plan, folder: Path) -> list[Path]:
    """Write plan.json, pareto.png and, where a fleet was chosen, its scenario: chosen.toml beside profile.json.

    Returns the files.
    """
    kept = [folder / "plan.json", folder / "pareto.png"]
    write_file(kept[0], msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    draw("plan", found, kept[1])
    scenario = found.scenario
    if scenario is not None and isinstance(scenario.profile, HardwareProfile):
        write_profile(scenario.profile, folder / "profile.json")
        comments = ["Written by `specfleet plan`.", *found.lines]
        write_file(folder / "chosen.toml", "\n".join(scenario_lines(scenario, "profile.json", comments)) + "\n")
        kept += [folder / "profile.json", folder / "chosen.toml"]
    return kept
