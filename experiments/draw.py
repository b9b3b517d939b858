"""Figures from files: what `specfleet figure` draws."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from figures import throughput, timeline
from figures.style import save
from specfleet.errors import InputError
from specfleet.records import read_run

COUNT = "verifiers.count"


def draw_timeline(results: Path, out: Path) -> None:
    """Draw the timeline of one run (a Parquet file)."""
    run = read_run(results)
    scenario = run.header.scenario
    title = f"{scenario.name}, N = {scenario.verifiers.count}, world: {run.header.world}"
    save(timeline.draw({title: run.frame()}), out, f"Steps of drafter and targets, from the records in {results.name}.")


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
    rows = []
    for place, group in table.groupby([*varied, COUNT, "world"]):
        *others, count, world = place
        metrics = group.set_index("quantity")
        row = {"case": ", ".join(f"{name} = {value}" for name, value in zip(varied, others, strict=True)) or "sweep"}
        row |= {"source": world, "N": count}
        for name in (throughput.SYSTEM, throughput.TARGET):
            row |= {name: metrics.value[name], f"{name}_low": metrics.low[name], f"{name}_high": metrics.high[name]}
        rows.append(row)
    cases = pd.DataFrame(rows)
    marks = pd.DataFrame({"case": cases.case.unique()}).assign(
        N_full=float("nan"),
        N_max=float("nan"),
        colocated_tokens_per_s=float("nan"),
        standalone_tokens_per_s=float("nan"),
    )
    save(throughput.draw(cases, marks), out, f"Committed tokens a second, from the sweep in {results}.")


FIGURES: dict[str, Callable[[Path, Path], None]] = {"timeline": draw_timeline, "throughput": draw_throughput}
