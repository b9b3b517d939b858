"""plan --in-flight and plan --devices: methods of speculation side by side, for one target or for a budget."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.console.printing import print_json, print_table, progress, remark
from fleet.errors import InputError
from fleet.shown import number

if TYPE_CHECKING:
    from experiments.plan.advice import FleetPlan, FleetRow
    from experiments.plan.methods import Cell, Methods
    from fleet.scenario.scenario import Scenario

SET = {"drafters.depth", "workload.prompt_tokens", "workload.new_tokens", "workload.lengths"}  # keys that count
SOURCE = "simulated; step times estimated from data sheets"


def plan_methods(
    scenario: Path,
    changes: dict[str, Any],
    target: Sequence[str],
    in_flight: str,
    *,
    as_json: bool,
    out: Path | None,
    **asked: Any,
) -> None:
    """Compare methods for one target, with the lengths of the scenario; `asked` as in `compare_methods`."""
    from experiments.plan.methods import compare_methods
    from fleet.scenario.workload import mean_lengths

    base, depth = _load(scenario, changes, target, "--in-flight compares methods for one target; give one --target")
    prompt, new = mean_lengths(base.workload)
    with progress("plan", 0) as advance:
        found = compare_methods(
            target[0], in_flight=_numbers(in_flight), prompt_tokens=round(prompt), new_tokens=round(new), depth=depth,
            done=advance, **asked,
        )  # fmt: skip
    if as_json:
        print_json(found)
    else:
        print_methods(found)
    if out is not None:
        from experiments.draw import draw

        draw("methods", found, out / "methods.png")
        _keep(found, out, "methods.json", "methods.png")


def plan_budget(
    scenario: Path,
    changes: dict[str, Any],
    target: Sequence[str],
    in_flight: str,
    *,
    as_json: bool,
    out: Path | None,
    **asked: Any,
) -> None:
    """Plan a budget of devices, with the lengths of the scenario; `asked` as in `plan_devices`."""
    from experiments.plan.advice import plan_devices

    base, depth = _load(scenario, changes, target, "--devices plans for one target; give one --target MODEL")
    flights = _numbers(in_flight) if in_flight else [0]
    if len(flights) > 1:
        raise InputError(f"--in-flight {in_flight}: --devices plans for one load; give one number")
    with progress("plan", 0) as advance:
        found = plan_devices(
            target=target[0], in_flight=flights[0], scenario=base, depth=depth, done=advance, **asked
        )  # fmt: skip
    if as_json:
        print_json(found)
    else:
        print_budget(found)
    if out is not None:
        files = ["plan.json"]
        if found.scenario is not None:
            files += write_chosen(found.scenario, found.lines, out)
        _keep(found, out, *files)


def _load(scenario: Path, changes: dict[str, Any], target: Sequence[str], one: str) -> "tuple[Scenario, int]":
    """Return the scenario of the load, and the depth that is set, or 0."""
    from fleet.scenario.reading import scenario_of

    if len(target) != 1:
        raise InputError(one)
    for key in changes.keys() - SET:
        raise InputError(f"--set {key}: has no effect here; allowed: {', '.join(sorted(SET))}")
    base = scenario_of(scenario, changes)
    return base, base.drafters.depth if "drafters.depth" in changes else 0


def _numbers(in_flight: str) -> list[int]:
    try:
        return [int(number) for number in in_flight.split(",")]
    except ValueError as error:
        raise InputError(f"--in-flight {in_flight}: write whole numbers, 1,8,32,64") from error


def _keep(found: "Methods | FleetPlan", out: Path, first: str, *others: str) -> None:
    import msgspec

    from fleet.files import write_file

    write_file(out / first, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    remark(f"kept in {out}: {', '.join((first, *others))}")


def write_chosen(scenario: "Scenario", lines: "Sequence[str]", folder: Path) -> list[str]:
    """Write the chosen fleet's scenario, chosen.toml beside profile.json; return the names of the files."""
    from fleet.files import write_file
    from fleet.scenario.writing import scenario_lines
    from fleet.times.profile import HardwareProfile, write_profile

    if not isinstance(scenario.profile, HardwareProfile):
        return []
    write_profile(scenario.profile, folder / "profile.json")
    comments = ["Written by `specfleet plan`.", *lines]
    write_file(folder / "chosen.toml", "\n".join(scenario_lines(scenario, "profile.json", comments)) + "\n")
    return ["profile.json", "chosen.toml"]


def print_methods(found: "Methods") -> None:
    """Print the lines of the answer, then the tables."""
    print(found.title)
    for line in found.lines:
        print(line)
    columns = [f"{C} in flight" for C in found.in_flight]
    names = list(dict.fromkeys(cell.method for cell in found.cells))
    for title, heading, text in (
        (SOURCE, "tokens/s of a target (TPOT, TTFT in ms; depth)", _text),
        ("", f"{found.unit} for 10^6 tokens", _cost),
        ("", "KV cache that they need", _share),
    ):
        print_table(title, (heading, *columns), [(name, *map(text, found.of(name))) for name in names])


def _text(cell: "Cell") -> str:
    depth = f"; {cell.depth}" if cell.depth else ""
    several = f", {cell.targets} targets a drafter" if cell.targets > 1 else ""
    return f"{cell.tokens_per_s:.0f} ({1e3 * cell.tpot_s:.1f}, {1e3 * cell.ttft_s:.0f}{depth}{several})"


def _cost(cell: "Cell") -> str:
    return f"{cell.per_million:.3g} {cell.standing}"


def _share(cell: "Cell") -> str:
    return "no limit" if math.isnan(cell.kv_share) else f"{cell.kv_share:.0%}"


def print_budget(found: "FleetPlan") -> None:
    """Print the lines of the answer, the best fleet of each method, and the commands."""
    print(found.title)
    for line in found.lines:
        print(line)
    heading = (
        "best fleet of each method", "targets", "depth", "", "tokens/s a user", "TPOT P99, ms", "TTFT P90, ms",
        "at once", "an hour", "10^6 tokens",
    )  # fmt: skip
    print_table(f"{SOURCE}; costs in {found.unit}", heading, [_fleet(row) for row in found.rows], texts=4)
    for command in found.commands:
        print(command)


def _fleet(row: "FleetRow") -> tuple[str, ...]:
    times = [number(1e3 * row.metrics[name].value) for name in ("tpot_p99_s", "ttft_p90_s")]
    return (
        row.method, row.targets, str(row.depth or "-"), row.standing, f"{1 / row.metrics['tpot_s'].value:.3g}", *times,
        f"{row.in_flight:.3g}", number(row.cost_per_hour), f"{row.per_million:.3g}",
    )  # fmt: skip
