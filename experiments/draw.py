"""Figures from files: what `specfleet figure` draws."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from experiments.reproduce.rows import Reproduction
from figures import draft_time, residuals, throughput, timeline
from figures import reproduction as reproduction_figure
from figures.style import save
from fleet.errors import InputError
from fleet.records.run import read_run
from fleet.times.profile import HardwareProfile, read_profile

COUNT = "verifiers.count"
MARKS = ("N_full", "N_max", "colocated_tokens_per_s", "standalone_tokens_per_s")


def draw_timeline(results: Path, out: Path) -> None:
    """Draw the timeline of one run (a Parquet file)."""
    run = read_run(results)
    scenario = run.header.scenario
    title = f"{scenario.name}, N = {scenario.verifiers.count}, world: {run.header.world}"
    save(timeline.draw({title: run.frame()}), out, f"Steps of drafter and targets, from the records in {results.name}.")


def draw_reproduction(results: Path, out: Path) -> None:
    """Draw a reproduction from what `specfleet reproduce --json` printed."""
    try:
        reproduction = msgspec.json.decode(results.read_bytes(), type=Reproduction)
    except OSError as error:
        raise InputError(f"{results}: cannot be read ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{results}: not a reproduction ({error}); write one with reproduce NAME --json") from error
    save_reproduction(reproduction, out)


def save_reproduction(reproduction: Reproduction, out: Path) -> None:
    """Draw the rows of a reproduction, paper against ours."""
    values: dict[str, set[str]] = {}
    for row in reproduction.rows:
        for key, value in row.case.items():
            values.setdefault(key, set()).add(_short(value))
    rows = [
        {
            "quantity": row.quantity,
            "case": ", ".join(f"{key} = {_short(row.case[key])}" for key in row.case if len(values[key]) > 1),
            "kind": row.kind,
            "paper": float("nan") if row.paper is None else row.paper,
            "ours": float("nan") if row.ours is None else row.ours,
        }
        for row in reproduction.rows
    ]
    caption = (
        f"{reproduction.name}: the paper's numbers, and those computed by the simulator. Only predicted rows count; "
        "fitted ones were used to set a parameter, input ones are the paper's own. Assumed: "
        + "; ".join(reproduction.assumptions)
        + "."
    )
    save(reproduction_figure.draw(pd.DataFrame(rows)), out, caption)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def draw_throughput(results: Path, out: Path) -> None:
    """Draw throughput against N from the folder of a sweep over verifiers.count."""
    file = results / "sweep.csv"
    if not file.is_file():
        raise InputError(f"{results}: holds no sweep.csv; give the folder of `specfleet sweep --vary {COUNT}=...`")
    table = pd.read_csv(file)
    if COUNT not in table:
        raise InputError(f"{file}: {COUNT} was not varied; sweep it with --vary {COUNT}=1:8")
    varied = [
        name for name in table.columns if name not in {COUNT, "world", "quantity", "value", "low", "high", "unit"}
    ]
    rows, marks = [], dict[str, dict[str, float]]()
    for place, group in table.groupby([*varied, COUNT, "world"]):
        *others, count, world = place
        metrics = group.set_index("quantity")
        row = {"case": ", ".join(f"{name} = {value}" for name, value in zip(varied, others, strict=True)) or "sweep"}
        row |= {"source": world, "N": count}
        for name in (throughput.SYSTEM, throughput.TARGET):
            row |= {name: metrics.value[name], f"{name}_low": metrics.low[name], f"{name}_high": metrics.high[name]}
        rows.append(row)
        marks.setdefault(row["case"], dict.fromkeys(MARKS, float("nan")))
        marks[row["case"]] |= {name: metrics.value[name] for name in MARKS if name in metrics.value}
    save(
        throughput.draw(pd.DataFrame(rows), pd.DataFrame([{"case": case} | values for case, values in marks.items()])),
        out,
        f"Committed tokens a second (bonus tokens included), from the sweep in {results.resolve().name}.",
    )


def draw_draft_time(profile: HardwareProfile, out: Path) -> None:
    """Draw the draft times after idle gaps and after warm-up tokens that a calibration measured."""
    idle, warm_up = (pd.DataFrame(_measured(profile, name)) for name in ("idle", "warm_up"))
    save(
        draft_time.draw(idle, warm_up),
        out,
        "Time of a draft in service, after the drafter was idle, and with throw-away tokens drafted in between. "
        + where_measured(profile),
    )


def draw_residuals(profile: HardwareProfile, out: Path) -> None:
    """Draw how well the step fits of a calibration fit."""
    points = [row | {"step": step} for step in ("draft", "verify") for row in _measured(profile, step)]
    save(
        residuals.draw(pd.DataFrame(points)),
        out,
        f"Fitted step times against measured medians; points held out of the fit are marked. {where_measured(profile)}",
    )


def where_measured(profile: HardwareProfile) -> str:
    """A sentence for captions: host and profile."""
    facts = profile.provenance
    host = facts.get("gpu") or facts.get("processor", "this host")
    return f"Measured on {host} ({facts.get('cores')} cores), profile {profile.digest()}."


def _measured(profile: HardwareProfile, name: str) -> list[dict[str, Any]]:
    if name not in profile.measured:
        raise InputError(f"profile {profile.name}: holds no measurements of {name!r}; calibrate one on this host")
    rows: list[dict[str, Any]] = profile.measured[name]
    return rows


def _profile(results: Path) -> HardwareProfile:
    return read_profile(results.name, results.parent)


FIGURES: dict[str, Callable[[Path, Path], None]] = {
    "throughput": draw_throughput,
    "timeline": draw_timeline,
    "draft-time": lambda results, out: draw_draft_time(_profile(results), out),
    "reproduction": draw_reproduction,
    "residuals": lambda results, out: draw_residuals(_profile(results), out),
}
