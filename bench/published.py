"""Throughputs of vLLM, SGLang and TensorRT-LLM that their users published in threads, against estimates.

A batch decodes in step: a round drafts, verifies, and yields the published accepted length in every row. Nothing is
fitted, but for the time of drafts elsewhere, which one row gives.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.serving_rows import MeasuredRun, predicted
from specfleet.experiments.reproduce.rows import Paper, PaperRow, Reproduction, fitted_if, in_parts, row
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.times.profile import HardwareProfile

THREADS = Paper("published", Path(__file__).parent)
DATA = ()  # the figures are beside this file
TAIL = "a set of few prompts ends with few of them running, and the thread prints no lengths"


def reproduce(_folder: Path | None = None) -> Reproduction:
    """Hold estimates against published throughputs and TPOTs, one part for each thread; say what other threads lack."""
    parts = {table["thread"]: _decoding(table) for table in THREADS["tables"]}
    parts |= {loop["thread"]: _loop(loop) for loop in THREADS["loops"]}
    parts |= {table["thread"]: _apart(table) for table in THREADS["apart"]}
    of_tables = [f"{table['thread']}: {table['assumed']}" for table in THREADS["tables"]]
    lacking = [f"not predicted: {thread}, for want of {lacks}" for thread, lacks in THREADS["missing"].items()]
    return in_parts("published", parts, [*THREADS.assumed(), *of_tables, *lacking])


def _decoding(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield the rows of a table of one target, with drafts and without."""
    profile = estimate(table["target"], table["draft"], engine=table["engine"])
    for entry in table["rows"]:
        batch, accepted = entry["rows"], entry.get("accepted", 1.0)
        time_s = round_s(profile, table["context"], batch, **_shape(entry))
        ours = 1000 * time_s / accepted if table["unit"] == "TPOT, ms" else batch * accepted / time_s
        case = _case(table, rows=batch)
        if entry.get("steps"):
            case |= {"draft": "{steps}_{children}_{nodes}".format_map(_shape(entry)), "accepted": accepted}
        note = TAIL if batch >= table.get("unsettled_from", batch + 1) else ""
        yield row(table["unit"], case, "estimated", entry["measured"], ours, note=note)


def _shape(entry: dict[str, Any]) -> dict[str, int]:
    return {name: entry.get(name, default) for name, default in (("steps", 0), ("nodes", 1), ("children", 1))}


def _case(table: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"thread": table["thread"].partition(",")[0], **keys}


def round_s(profile: HardwareProfile, context: float, rows: int, *, steps: int, nodes: int, children: int) -> float:
    """Return the time of a round of rows in step: a draft of `steps` passes, and a verification of `nodes` a row.

    `children`: nodes that each pass of a row goes on with; 1 is a chain.
    """
    if not steps:
        return profile.decode.mean_s(1, context, rows, rows - 1)
    wide = rows * children
    drafting_s = profile.draft.mean_s(steps, context, wide, steps * (wide - 1))
    return drafting_s + profile.verify.mean_s(nodes, context, rows, nodes * (rows - 1))


def _loop(loop: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield TPOT and TTFT of closed loops, simulated."""
    settings = {name: value for name, value in loop.items() if name not in ("thread", "rows")}
    for entry in loop["rows"]:
        run = MeasuredRun(name="", **settings, **entry)
        ours, case = predicted(run), _case(loop, concurrency=run.concurrency)
        yield row("TPOT, ms", case, "estimated", run.tpot_ms, ours.tpot_ms)
        yield row("TTFT, ms", case, "estimated", run.ttft_ms, ours.ttft_ms)


def _apart(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield the rows of a drafter elsewhere: a round is a plain step and a draft, whose time the first row gives."""
    first = table["rows"][0]
    draft_s = first["accepted"] / first["measured"] - 1 / first["plain"]
    for entry in table["rows"]:
        ours = entry["accepted"] / (1 / entry["plain"] + draft_s)
        case = _case(table, rows=entry["rows"], accepted=entry["accepted"])
        yield row("tokens/s of a request", case, fitted_if(entry is first), entry["measured"], ours)
