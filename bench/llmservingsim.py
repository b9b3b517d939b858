"""LLMServingSim's measured vLLM runs, predicted request by request from its operators' tables of the same card.

A run's arrivals, lengths and limits go in, and none of its other times. The host adds nothing: asynchronous scheduling
hides it. The tables are of `llmservingsim/GPU/MODEL/tpN`, the runs of `llmservingsim/vllm-runs/GPU/MODEL`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.harness import Aim, Options, Report, Row, data_file, data_option
from specfleet.figures.style import COLOURS, NEW_FIGURE, save
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.profile import estimated_profile, placed_of
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

CARDS = {"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000"}
FOLDER, BLOCK = "llmservingsim", 16  # tokens of a block of vLLM's cache
NO_HOST = Figure(0.0, "assumed: none; asynchronous scheduling hides it")
TPOT_AIM, TTFT_AIM = 1.0, 2.0  # absolute errors of means, in hundredths
OPTIONS: Options = data_option(f"{FOLDER}/vllm-runs/GPU/MODEL, and the tables of {FOLDER}/GPU/MODEL/tpN")
Curves = pd.DataFrame  # running, waiting, KV share by seconds


def study(options: argparse.Namespace) -> Report:
    """Predict each run, compare it, and draw both over time."""
    found = sorted((options.data or Path("none")).glob(f"{FOLDER}/vllm-runs/*/*/meta.json"))
    if not found:
        raise InputError(f"give --data FOLDER, which holds {FOLDER}/vllm-runs/GPU/MODEL/meta.json")
    tables: dict[str, list[Row]] = {}
    aims, curves = [], dict[str, tuple[Curves, Curves]]()
    for folder in (file.parent for file in found):
        name, measured = f"{folder.parent.name}, {folder.name}", requests_in(folder)
        scenario = scenario_of_run(options.data, folder, options.out)
        rows, simulated, over_time = predicted(scenario)
        seen_s = measured.last_token_ts.max() - measured.queued_ts.min()
        tables[name] = [*rows, {"quantity": "end, s", **errors(seen_s, simulated.last_s.max())}]
        for quantity in ("ttft", "tpot"):
            seen_ms, ours_ms = (times_ms(table)[quantity] for table in (measured, simulated))
            for statistic, level in (("mean", None), ("P50", 0.5), ("P90", 0.9), ("P99", 0.99)):
                pair = [float(ms.mean() if level is None else np.quantile(ms, level)) for ms in (seen_ms, ours_ms)]
                tables[name].append({"quantity": f"{quantity.upper()} {statistic}, ms", **errors(*pair)})
            mean = next(row for row in tables[name] if row["quantity"].startswith(f"{quantity.upper()} mean"))
            most = TPOT_AIM if quantity == "tpot" else TTFT_AIM
            aims.append(Aim(f"{name}: mean {quantity.upper()}, absolute error, %", abs(mean["error, %"]), most))
        curves[name] = over_time, pd.read_csv(data_file(folder, "timeseries.csv"), index_col="t")
    draw(curves, options.out / "llmservingsim.png")
    return Report(tables, aims)


def errors(measured: float, simulated: float) -> Row:
    """Return a measured and a simulated value and the signed error."""
    return {"measured": measured, "simulated": simulated, "error, %": 100 * (simulated / measured - 1)}


def requests_in(folder: Path) -> pd.DataFrame:
    """Return the requests of a run in the order in which vLLM received them."""
    rows = [json.loads(line) for line in data_file(folder, "requests.jsonl").read_text().splitlines()]
    return pd.DataFrame(rows).sort_values("queued_ts", kind="stable", ignore_index=True)


def scenario_of_run(data: Path, folder: Path, out: Path) -> Scenario:
    """Return what a run is simulated as: the tables' step times, its arrivals, lengths and limits."""
    meta, requests = json.loads((folder / "meta.json").read_text()), requests_in(folder)
    asked, card = meta["engine_kwargs"], folder.parent.name
    if card not in CARDS:
        raise InputError(f"{folder}: card {card} is not known; allowed: {', '.join(CARDS)}")
    place = placed_of(f"{asked['model']}@{asked['tensor_parallel_size']}x{CARDS[card]}")
    engine = msgspec.structs.replace(place.engine, step_s=NO_HOST, row_s=NO_HOST, request_s=NO_HOST)
    engine = msgspec.structs.replace(engine, mixture_step_s=None, mixture_row_s=None, mixture_request_s=None)
    operators = data / FOLDER / card / asked["model"] / f"tp{place.parallel}"
    profile = estimated_profile(msgspec.structs.replace(place, engine=engine, operators=str(operators)))
    columns = ("queued_ts", "input_toks", "output_toks")
    trace = requests[[*columns]].set_axis(["arrived_at", "num_prefill_tokens", "num_decode_tokens"], axis=1)
    trace.assign(arrived_at=trace.arrived_at - trace.arrived_at.min()).to_csv(out / "trace.csv", index=False)
    limits: dict[str, Any] = {name: asked[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    limits |= {"kv_tokens": meta.get("kv_cache", {}).get("num_kv_tokens", 0), "kv_block_size": BLOCK}
    return make_scenario(
        {
            "name": f"{card}, {folder.name}",
            "profile": msgspec.to_builtins(msgspec.structs.replace(profile, kv=None)),
            "drafters": {"count": 0},
            "verifiers": limits | {"prefix_cache": True},
            "workload": {
                "requests": len(requests),
                "arrivals": {"process": "trace", "file": str((out / "trace.csv").resolve())},
            },
        }
    )


def predicted(scenario: Scenario) -> tuple[list[Row], pd.DataFrame, Curves]:
    """Simulate a run; return its steps and preempted rows, times of its requests, and its queues at each step."""
    run = simulate(scenario)
    found, rows = findings_of(run).requests, run.frame()
    requests = pd.DataFrame(
        {"queued_ts": found.joined_s, "first_token_ts": found.first_s, "last_token_ts": found.last_s}
    )
    requests["output_toks"] = found.tokens
    parts = rows[rows.event == "start"].assign(fed=lambda part: part.tokens.where(part.kind != "decode", 1))
    parts["end"] = parts.base + parts.fed
    again = parts.base < parts.groupby("request").end.cummax().groupby(parts.request).shift()
    parts["blocks"] = -(-parts.end // BLOCK)
    steps = parts.groupby("step", as_index=False).agg(
        t=("time_s", "first"), running=("request", "size"), blocks=("blocks", "sum")
    )
    came, left = (np.sort(requests[name]) for name in ("queued_ts", "last_token_ts"))
    inside = np.searchsorted(came, steps.t, "right") - np.searchsorted(left, steps.t, "right")
    steps["waiting"] = np.maximum(inside - steps.running, 0)
    steps["kv_cache_pct"] = 100 * BLOCK * steps.blocks / (scenario.verifiers.kv_tokens or np.nan)
    counted = {"steps": len(steps), "preempted rows": int(again.sum())}
    return [{"quantity": name, "simulated": value} for name, value in counted.items()], requests, steps.set_index("t")


def times_ms(requests: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Return TTFT and TPOT of each request, from when the engine received it."""
    decoded_s = requests.last_token_ts - requests.first_token_ts
    tpot_s, ttft_s = decoded_s / (requests.output_toks - 1), requests.first_token_ts - requests.queued_ts
    return {"ttft": 1000 * ttft_s.to_numpy(), "tpot": 1000 * tpot_s.to_numpy()}


def draw(curves: dict[str, tuple[Curves, Curves]], path: Path) -> None:
    """Draw what runs, what waits and the share of the cache in use, a row of panels for each run."""
    shown = {"running": "running requests", "waiting": "waiting requests", "kv_cache_pct": "KV cache in use, %"}
    panels = NEW_FIGURE.panels(3 * len(curves), 3, 10.0, 2.6 * len(curves))
    for number, (name, pair) in enumerate(curves.items()):
        for axes, (column, label) in zip(panels[3 * number :], shown.items(), strict=False):
            for table, world, title in zip(pair, ("sim", "engine"), ("simulated", "measured"), strict=True):
                axes.plot(table.index, table[column], color=COLOURS[world], linewidth=1.0, label=title)
            axes.set(xlabel="time, s", ylabel=label, title=name)
    panels[0].legend()
    save(panels[0].get_figure(root=True), path, "Measured: vLLM 0.19, by LLMServingSim. Simulated: its tables.")
