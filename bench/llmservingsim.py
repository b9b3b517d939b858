"""LLMServingSim's measured vLLM runs, predicted request by request from its operators' tables of the same card.

Arrivals, lengths and limits of a run go in, and no other times of it. Asynchronous scheduling hides the host's.
"""

import argparse
import json
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from bench.harness import Aim, Options, Report, Row, data_file, data_option
from specfleet.figures.style import COLOURS, NEW_FIGURE, save
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.profile import estimated_profile, placed_of
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

CARDS = {"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000"}
TABLES, RUNS, BLOCK = "llmservingsim", "llmservingsim/vllm-runs", 16  # tokens of a block of vLLM's cache
NO_HOST = Figure(0.0, "assumed: none; asynchronous scheduling hides it")
HOST = dict.fromkeys(("step_s", "row_s", "request_s", "mixture_step_s", "mixture_row_s", "mixture_request_s"), NO_HOST)
AIMS = {"TTFT mean, ms": 2.0, "TPOT mean, ms": 1.0}  # absolute errors in hundredths
LEVELS = {"P50": 0.5, "P90": 0.9, "P99": 0.99}
CURVES = {"running": "running requests", "waiting": "waiting requests", "kv_cache_pct": "KV cache in use, %"}
OPTIONS: Options = data_option(f"{RUNS}/GPU/MODEL", f"the tables of {TABLES}/GPU/MODEL/tpN")


def study(options: argparse.Namespace) -> Report:
    """Predict each run, compare it, and draw both over time."""
    tables, curves, aims = dict[str, list[Row]](), dict[str, pd.DataFrame](), list[Aim]()
    for file in sorted((options.data or Path("none")).glob(f"{RUNS}/*/*/requests.jsonl")):
        measured = pd.DataFrame(map(json.loads, file.read_text().splitlines())).sort_values("queued_ts", kind="stable")
        run = f"{file.parts[-3]}, {file.parts[-2]}"
        simulated, steps, preempted = predicted(scenario_of_run(options.data, file.parent, measured, options.out))
        values = {"measured": figures_of(measured), "simulated": (ours := figures_of(simulated))}
        off = values["error, %"] = {name: 100 * (ours[name] / seen - 1) for name, seen in values["measured"].items()}
        tables[run] = [{"quantity": name} | {title: of[name] for title, of in values.items()} for name in off]
        tables[run] += [{"quantity": "steps, preempted rows", "simulated": f"{len(steps)}, {preempted}"}]
        aims += [Aim(f"{run}: {name}, %", abs(off[name]), most) for name, most in AIMS.items()]
        curves |= {run: steps, f"{run}, measured": pd.read_csv(data_file(file.parent, "timeseries.csv"))}
    if not tables:
        raise InputError(f"give --data FOLDER, which holds {RUNS}/GPU/MODEL/requests.jsonl")
    draw(curves, options.out / "llmservingsim.png")
    return Report(tables, aims)


def figures_of(requests: pd.DataFrame) -> dict[str, float]:
    """Return TTFT and TPOT, counted from when the engine received a request, and the end of a run."""
    decoded_s = requests.last_token_ts - requests.first_token_ts
    times_s = {"TTFT": requests.first_token_ts - requests.queued_ts, "TPOT": decoded_s / (requests.output_toks - 1)}
    figures = {"end, s": requests.last_token_ts.max() - requests.queued_ts.min()}
    for name, time_s in times_s.items():
        figures[f"{name} mean, ms"] = 1000 * time_s.mean()
        figures |= {f"{name} {title}, ms": 1000 * time_s.quantile(level) for title, level in LEVELS.items()}
    return {name: float(value) for name, value in figures.items()}


def scenario_of_run(data: Path, folder: Path, requests: pd.DataFrame, out: Path) -> Scenario:
    """Return what a run is simulated as: the tables' step times, its arrivals, lengths and limits."""
    meta, card = json.loads(data_file(folder, "meta.json").read_text()), folder.parent.name
    asked, trace = meta["engine_kwargs"], (out / "trace.csv").resolve()
    place = placed_of(f"{asked['model']}@{asked['tensor_parallel_size']}x{CARDS.get(card, card)}")
    operators, engine = f"{data / TABLES / card / asked['model']}", msgspec.structs.replace(place.engine, **HOST)
    placed = msgspec.structs.replace(place, engine=engine, operators=f"{operators}/tp{place.parallel}")
    columns = {"queued_ts": "arrived_at", "input_toks": "num_prefill_tokens", "output_toks": "num_decode_tokens"}
    rows = requests[[*columns]].rename(columns=columns)
    write_file(trace, rows.assign(arrived_at=rows.arrived_at - rows.arrived_at.min()).to_csv(index=False))
    limits = {name: asked[name] for name in ("max_num_seqs", "max_num_batched_tokens")} | {"kv_block_size": BLOCK}
    limits |= {"kv_tokens": meta.get("kv_cache", {}).get("num_kv_tokens", 0), "prefix_cache": True}
    workload = {"requests": len(rows), "arrivals": {"process": "trace", "file": str(trace)}}
    profile = msgspec.to_builtins(msgspec.structs.replace(estimated_profile(placed), kv=None))
    tables = {"profile": profile, "drafters": {"count": 0}, "verifiers": limits, "workload": workload}
    return make_scenario({"name": f"{card}, {folder.name}"} | tables)


def predicted(scenario: Scenario) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Simulate a run; return times of its requests, what runs and waits at each step, and how many rows it preempts."""
    run = simulate(scenario)
    table, rows = findings_of(run).requests, run.frame()
    times = {"queued_ts": table.joined_s, "first_token_ts": table.first_s, "last_token_ts": table.last_s}
    parts = rows[rows.event == "start"]
    decodes = parts.kind == "decode"  # of the last of base tokens
    ends = parts.base + parts.tokens.where(~decodes, 0)
    preempted = parts.base < (ends + decodes).groupby(parts.request).shift()
    grouped = parts.assign(blocks=-(-ends // BLOCK)).groupby("step")
    steps = grouped.agg(t=("time_s", "first"), running=("request", "size"), blocks=("blocks", "sum"))
    came, left = np.sort(table.joined_s), np.sort(table.last_s)
    inside = np.searchsorted(came, steps.t, "right") - np.searchsorted(left, steps.t, "right")
    share = 100 * BLOCK * steps.blocks / (scenario.verifiers.kv_tokens or np.nan)
    steps = steps.assign(waiting=np.maximum(inside - steps.running, 0), kv_cache_pct=share)
    return pd.DataFrame(times | {"output_toks": table.tokens}), steps, int(preempted.sum())


def draw(curves: dict[str, pd.DataFrame], path: Path) -> None:
    """Draw what runs, what waits and the share of the cache in use, a row of panels for each run."""
    panels = NEW_FIGURE.panels(3 * len(curves) // 2, 3, 10.0, 1.3 * len(curves))
    for place, (name, table) in enumerate(curves.items()):
        title, world = ("measured", "engine") if place % 2 else ("simulated", "sim")
        for axes, (column, label) in zip(panels[place // 2 * 3 :], CURVES.items(), strict=False):
            if not table.kv_cache_pct.fillna(0).any() and column == "kv_cache_pct":
                axes.set_axis_off()
                axes.text(0.5, 0.5, "the size of its cache is not recorded", ha="center", transform=axes.transAxes)
                break
            axes.plot(table.t, table[column], color=COLOURS[world], linewidth=1.0, label=title)
            axes.set(xlabel="time, s", ylabel=label, ylim=(0, None))
        panels[place // 2 * 3].set_title(name.removesuffix(", measured"), loc="left")
    panels[0].legend()
    save(panels[0].get_figure(root=True), path, "Measured: vLLM 0.19, by LLMServingSim. Simulated: from its tables.")
