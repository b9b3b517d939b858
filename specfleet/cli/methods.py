"""plan --in-flight: methods of speculation side by side, a row for each method, a column for each load."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.console.printing import print_json, print_table, progress
from fleet.errors import InputError

if TYPE_CHECKING:
    from experiments.plan.methods import Cell, Methods

SET = {"drafters.depth", "workload.prompt_tokens", "workload.new_tokens", "workload.lengths"}  # keys that count


def plan_methods(
    scenario: Path,
    changes: dict[str, Any],
    target: Sequence[str],
    in_flight: str,
    *,
    cost: Sequence[str],
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare methods for one target, with the lengths of the scenario; `asked` as in `compare_methods`."""
    from experiments.plan.methods import compare_methods
    from fleet.scenario.reading import scenario_of
    from fleet.scenario.workload import mean_lengths

    if len(target) != 1:
        raise InputError("--in-flight compares methods for one target; give one --target MODEL@DEVICE")
    try:
        flights = [int(number) for number in in_flight.split(",")]
    except ValueError as error:
        raise InputError(f"--in-flight {in_flight}: write whole numbers, 1,8,32,64") from error
    for key in changes.keys() - SET:
        raise InputError(f"--set {key}: has no effect with --in-flight; allowed: {', '.join(sorted(SET))}")
    base = scenario_of(scenario, changes)
    prompt, new = mean_lengths(base.workload)
    depth = base.drafters.depth if "drafters.depth" in changes else 0
    with progress("plan", 0) as advance:
        found = compare_methods(
            target[0], in_flight=flights, prompt_tokens=round(prompt), new_tokens=round(new), cost=cost, depth=depth,
            done=advance, **asked,
        )  # fmt: skip
    if as_json:
        print_json(found)
    else:
        print_methods(found)


def print_methods(found: "Methods") -> None:
    """Print the lines of the answer, then the tables."""
    print(found.title)
    for line in found.lines:
        print(line)
    columns = [f"{C} in flight" for C in found.in_flight]
    names = list(dict.fromkeys(cell.method for cell in found.cells))
    for title, heading, text in (
        ("simulated; step times estimated from data sheets", "tokens/s of a target (TPOT, TTFT in ms; depth)", _text),
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
