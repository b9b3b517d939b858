"""Throughputs of vLLM, SGLang and TensorRT-LLM that their users published in threads, against estimates.

A batch decodes in step: a round drafts, verifies, and yields the published accepted length in every row. Four versions
of vLLM give the host's times of a draft and of its passes, whose medians the engine's file has; the rows of each are
predicted from those of the others. One row gives the time of drafts elsewhere.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import nnls

from bench.serving_rows import MeasuredRun, predicted
from bench.specdecode import EAGLE_DEPTH, EAGLE_S, TARGET_S
from bench.specdecode import PAPER as SPECDECODE
from specfleet.experiments.reproduce.rows import Kind, Paper, PaperRow, Reproduction, fitted_if, in_parts, row
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.run import observe

THREADS = Paper("published", Path(__file__).parent)
DATA = ()  # the figures are beside this file
VERSIONS = ("vLLM #20780", "vLLM #16035", "vLLM #24343")  # threads whose rows give the host's times of drafts
UNSAID = "the thread prints neither model nor lengths nor devices; those here are assumed"
DSPARK = (0.712, 0.517, 0.390, 0.305, 0.244, 0.200, 0.169)  # GLM-5.2, survival by position (vLLM #52992)
ANSWER, EACH = 512, 2  # tokens, with a tenth more or less; requests for each in flight
PREFILL = {"link": {"bandwidth_bytes_per_s": 50e9}, "draft_cache": "sent"}
TAIL = "a set of few prompts ends with few of them running, and the thread prints no lengths"


def reproduce(_folder: Path | None = None) -> Reproduction:
    """Hold estimates against published throughputs and TPOTs, one part for each thread; say what other threads lack."""
    parts = {table["thread"]: _decoding(table, _profile(table)) for table in THREADS["tables"]}
    parts["from the other versions"] = _from_the_others()
    parts |= {loop["thread"]: _loop(loop) for loop in THREADS["loops"]}
    parts |= {table["thread"]: _apart(table) for table in THREADS["apart"]}
    parts |= {table["thread"]: _split(table) for table in THREADS["splits"]}
    of_tables = [f"{table['thread']}: {table['assumed']}" for table in THREADS["tables"]]
    lacking = [f"not predicted: {thread}, for want of {lacks}" for thread, lacks in THREADS["missing"].items()]
    return in_parts("published", parts, [*THREADS.assumed(), *of_tables, *lacking])


class Drafting(NamedTuple):
    """The host's times of a draft beside its passes, and of a pass."""

    draft_s: float
    pass_s: float


def drafting_of_versions() -> dict[str, Drafting]:
    """Return the host's times of drafts in each version of vLLM: what is left of its rounds without verification.

    SpecDecode-Bench's: of its simulator's draft of 3, and what figure 4 has of sampling and all else beside plain
    decoding's.
    """
    versions = {}
    for table in THREADS["tables"]:
        if (name := _case(table)["thread"]) in VERSIONS:
            verify, rows = _profile(table).verify, [entry for entry in table["rows"] if entry.get("steps")]
            left_s = [_measured_s(table, entry) - verify.mean_s(entry["nodes"], table["context"]) for entry in rows]
            sizes = np.array([(1.0, entry["steps"]) for entry in rows])
            versions[name] = Drafting(*nnls(sizes, np.array(left_s))[0].tolist())
    (_, plain, *beside), (_, verified, *beside_drafts) = (
        SPECDECODE["figure_4"][name][1] for name in ("none", "EAGLE-3")
    )
    more = sum(beside_drafts) / verified - sum(beside) / plain
    pass_s, verify_s = EAGLE_S[0] / EAGLE_DEPTH, TARGET_S[0]
    return versions | {"SpecDecode-Bench": Drafting(more * verify_s, pass_s)}


def median_of(versions: Iterable[Drafting]) -> Drafting:
    """Return the medians of versions."""
    return Drafting(*map(median, zip(*versions, strict=True)))


def _measured_s(table: dict[str, Any], entry: dict[str, Any]) -> float:
    """Return the measured time of a round."""
    measured, accepted = entry["measured"], entry.get("accepted", 1.0)
    return accepted * measured / 1000 if table["unit"] == "TPOT, ms" else entry["rows"] * accepted / measured


def _from_the_others() -> Iterator[PaperRow]:
    """Yield the rows of each version, predicted with the host's times of the others; and those times."""
    versions = drafting_of_versions()
    for name, own in versions.items():
        others = median_of(times for other, times in versions.items() if other != name)
        yield row("host, a drafting pass, ms", {"thread": name}, "predicted", 1e3 * own.pass_s, 1e3 * others.pass_s)
        yield row("host, a draft beside, ms", {"thread": name}, "identity", 1e3 * own.draft_s, 1e3 * others.draft_s)
        for table in THREADS["tables"]:
            if _case(table)["thread"] == name:
                draft = _profile(table).draft
                roofline = msgspec.structs.replace(draft.roofline, host_s=others.pass_s)
                draft = msgspec.structs.replace(draft, base_s=others.draft_s, roofline=roofline)
                rows = _decoding(table, msgspec.structs.replace(_profile(table), draft=draft))
                yield from (msgspec.structs.replace(made, kind="predicted") for made in rows if made.kind == "fitted")


def _profile(table: dict[str, Any]) -> HardwareProfile:
    return estimate(table["target"], table["draft"], engine=table["engine"])


def _decoding(table: dict[str, Any], profile: HardwareProfile) -> Iterator[PaperRow]:
    """Yield the rows of a table of one target, with drafts and without."""
    for entry in table["rows"]:
        batch, accepted = entry["rows"], entry.get("accepted", 1.0)
        time_s = round_s(profile, table["context"], batch, **_shape(entry))
        ours = 1000 * time_s / accepted if table["unit"] == "TPOT, ms" else batch * accepted / time_s
        case = _case(table, rows=batch)
        if entry.get("steps"):
            case |= {"draft": "{steps}_{children}_{nodes}".format_map(_shape(entry)), "accepted": accepted}
        note = TAIL if batch >= table.get("unsettled_from", batch + 1) else ""
        kind: Kind = "fitted" if entry.get("steps") and case["thread"] in VERSIONS else "estimated"
        yield row(table["unit"], case, kind, entry["measured"], ours, note=note)


def _split(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield what prefill servers give beside whole servers on the same devices, as ratios; all are unsettled."""
    for prompt in table["prompts"]:
        whole = split_or_whole(table, prompt, table["whole"]["drafts"], split=False)
        for entry in table["rows"]:
            ours = split_or_whole(table, prompt, entry["drafts"], split=True) / whole
            case = _case(table, prompt_tokens=prompt, drafts=entry["drafts"])
            yield row(
                f"{table['metric']}, prefill apart over whole", case, "estimated", entry["measured"], ours, note=UNSAID
            )


def split_or_whole(table: dict[str, Any], prompt: int, drafts: bool, split: bool) -> float:
    """Return a metric of two servers, simulated: a prefill and a decode server, or both whole."""
    profile = estimate(table["target"], table["draft"] if drafts else None, engine="sglang")
    if drafts:  # all of a block in one pass
        profile = msgspec.structs.replace(profile, draft=StepTime(base_s=profile.draft.mean_s(1, prompt)))
    drafters = {"place": "target", "kind": "eagle", "depth": len(DSPARK)} if drafts else {"count": 0}
    servers = (
        {"count": 1, "prefill": PREFILL if drafts else PREFILL | {"draft_cache": "computed"}} if split else {"count": 2}
    )
    lengths = {"prompt_tokens": prompt, "new_tokens": {"low": ANSWER * 9 // 10, "high": ANSWER * 11 // 10}}
    scenario = make_scenario({
        "profile": profile, "acceptance": {"model": "per-position", "survival": DSPARK}, "drafters": drafters,
        "verifiers": {"max_num_batched_tokens": 8192, "prefill_first": True} | servers,
        "workload": {"requests": max(EACH * table["in_flight"], 8), "streams": table["in_flight"]} | lengths,
    })  # fmt: skip
    return measure(observe(scenario))[table["metric"]].value


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
        run = MeasuredRun(name="", **settings, **{"ttft_ms": 0.0} | entry)
        ours, case = predicted(run), _case(loop, concurrency=run.concurrency)
        yield row("TPOT, ms", case, "estimated", run.tpot_ms, ours.tpot_ms)
        if run.ttft_ms:
            yield row("TTFT, ms", case, "estimated", run.ttft_ms, ours.ttft_ms)


def _apart(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield the rows of a drafter elsewhere: a round is a plain step and a draft, whose time the first row gives."""
    first = table["rows"][0]
    draft_s = first["accepted"] / first["measured"] - 1 / first["plain"]
    for entry in table["rows"]:
        ours = entry["accepted"] / (1 / entry["plain"] + draft_s)
        case = _case(table, rows=entry["rows"], accepted=entry["accepted"])
        yield row("tokens/s of a request", case, fitted_if(entry is first), entry["measured"], ours)
