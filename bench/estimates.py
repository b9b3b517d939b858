"""Estimated step times against others' measurements: each estimate against the row it predicts.

No efficiency is used on the source that it was fitted on: those of the A100 estimate Vidur's H100 and the other way
round; those of both estimate engines that Vidur did not measure; the host's time a layer, from AMUSD's drafter,
estimates AMUSD's target and StarSD.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.efficiencies import EFFICIENCIES, FILES, estimated_s, read_operators, with_figures
from bench.harness import off_by
from bench.specdecode import EAGLE_DEPTH, EAGLE_S, TARGET_S
from specfleet.experiments.reproduce import amusd, starsd
from specfleet.experiments.reproduce.amusd_runs import read_sample
from specfleet.experiments.reproduce.rows import Kind, Paper, PaperRow, Reproduction, in_parts, row
from specfleet.fleet.hardware.passes import roofline_of
from specfleet.fleet.hardware.profile import estimated_profile, placed_of
from specfleet.fleet.hardware.shipped import device_of
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

PAPER = Paper("estimates", Path(__file__).parent)
QWEN, GLM, CONTEXT = (PAPER[name] for name in ("qwen3-8b", "glm-4.5-air", "context"))
AMUSD_RUNS = "amusd-a100-refactorchat-sample.json"
DATA = (*FILES.values(), AMUSD_RUNS)
SHOWN_TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 4096)
STARSD_TREE = 60  # nodes that EAGLE-2 verifies, its default
STARSD_PASSES = 6  # of a draft: EAGLE-2's default depth of 5, and the root


def reproduce(folder: Path | None) -> Reproduction:
    """Hold estimates against measurements of Vidur, SpecDecode-Bench, AMUSD and StarSD.

    Without a folder, or files in it, the rows of Vidur and of AMUSD's run file are left out.
    """
    there = {file for file in DATA if folder is not None and (folder / file).is_file()}
    notes, parts = [f"left out without {file}" for file in DATA if file not in there], {}
    for (device, file), other in zip(FILES.items(), reversed(FILES), strict=True):
        if folder is not None and file in there:
            rows, errors = vidur(folder / file, device, other)
            parts[f"Vidur, operators of Llama-2-7B on {device}"] = rows
            notes.append(f"all {len(errors)} places of {file}: {off_by(errors)}")
    runs = folder / AMUSD_RUNS if folder is not None and AMUSD_RUNS in there else None
    parts |= {
        "SpecDecode-Bench's constants, Llama-3.1-8B on H100": list(_constants()),
        "SpecDecode-Bench's figure 3, Qwen3-8B on H100": list(_throughput("qwen3-8b@h100", QWEN, "estimated")),
        "SpecDecode-Bench's figure 3, GLM-4.5-Air on 4 H100": list(_throughput("glm-4.5-air@4xh100", GLM, "fitted")),
        "AMUSD, Llama-3 on A100": list(_amusd(runs)),
        "StarSD, an EAGLE-2 pair on RTX 4090 and A100": list(_starsd()),
    }
    return in_parts("estimates", parts, [*notes, *PAPER.assumed()])


def vidur(file: Path, device: str, other: str) -> tuple[list[PaperRow], list[float]]:
    """Estimate the operators of a layer on a device with the efficiencies of another; return some rows, all errors."""
    rows, errors, efficient = [], [], {name: getattr(device_of(other), name).value for name in EFFICIENCIES}
    for place in read_operators(file):
        model = with_figures(placed_of(f"llama-2-7b@{place.parallel}x{device}"), efficient)
        paper_s, ours_s = sum(place.times_s.values()), sum(estimated_s(model, place.tokens).values())
        errors.append(ours_s / paper_s - 1)
        if place.tokens in SHOWN_TOKENS:
            case = {"device": device, "efficiencies of": other, "workers": place.parallel, "tokens": place.tokens}
            rows.append(row("operators of a layer, ms", case, "estimated", 1000 * paper_s, 1000 * ours_s))
    return rows, errors


def _constants() -> Iterator[PaperRow]:
    """Return the rows of the constants that SpecDecode-Bench's simulator fitted to vLLM."""
    target = estimated_profile(placed_of("llama-3.1-8b@h100")).verify
    case: dict[str, Any] = {"device": "h100", "efficiencies of": "h100"}

    def ours_s(rows: int, context: float = 0.0, tokens: int = 1) -> float:
        """Return the time of a batch of rows that feed so many tokens each."""
        return target.mean_s(tokens, context, rows, tokens * (rows - 1)) - target.base_s

    fixed_s, fed_s, cached_s = TARGET_S
    token_s, context_s = (ours_s(256) - ours_s(1)) / 255, (ours_s(64, 1000) - ours_s(64)) / 64_000
    yield row("verification, fixed, ms", case, "estimated", 1000 * fixed_s, 1000 * ours_s(1))
    yield row("verification, a token fed (1 to 256), us", case, "estimated", 1e6 * fed_s, 1e6 * token_s)
    yield row("verification, a token in the cache, ns", case, "estimated", 1e9 * cached_s, 1e9 * context_s)
    for engine in ("eager", "graphs"):
        head = placed_of("eagle3-llama-3.1-8b@h100", engine=engine)
        draft = estimated_profile(placed_of("llama-3.1-8b@h100"), head).draft
        draft_ms = 1000 * (draft.mean_s(EAGLE_DEPTH) - draft.base_s)
        yield row("draft of 3 by EAGLE-3, fixed, ms", case | {"engine": engine}, "fitted", 1000 * EAGLE_S[0], draft_ms)
    for batch, fed in ((1, 1), (1, 4), (16, 16), (16, 64), (64, 64), (64, 256)):
        context = 500
        paper_s = fixed_s + fed * fed_s + batch * context * cached_s
        place = case | {"batch": batch, "tokens": fed, "context": context}
        batch_ms = 1000 * ours_s(batch, context, fed // batch)
        yield row("verification by these constants, ms", place, "identity", 1000 * paper_s, batch_ms)


def _throughput(place: str, printed: dict[str, dict[int, int]], kind: Kind) -> Iterator[PaperRow]:
    """Return the rows of figure 3: plain decoding of copies of one prompt, the overhead of a step included."""
    placed = placed_of(place)
    decode = StepTime(base_s=placed.engine.step_s.value, roofline=roofline_of(placed, alike=True))
    for name, by_batch in printed.items():
        for batch, paper in by_batch.items():
            ours = batch / decode.mean_s(1, CONTEXT[name], batch, batch - 1)
            yield row("plain decoding, tokens/s", {"place": place, "set": name, "batch": batch}, kind, paper, ours)


def _amusd(runs: Path | None) -> Iterator[PaperRow]:
    """Return the rows of AMUSD's paper, and of its authors' run file."""
    pair = pair_of("llama-3.1-8b", "llama-3.2-1b", "a100-80gb")
    case: dict[str, Any] = {"device": "a100-80gb", "host from": "llama-3.2-1b"}
    tokens = {"draft": 1, "decode": 1, "verify": amusd.DEPTH + 1}
    draft_ms, decode_ms, verify_ms = (1000 * getattr(pair, step).mean_s(count, 1000) for step, count in tokens.items())
    in_text = case | {"from": "section IV-A"}
    yield row("draft of a token, ms", in_text, "input", amusd.SECTION_4A_MS["draft"], draft_ms)
    for name, paper_ms in amusd.TABLE_1_MS.items():
        of_table = case | {"from": f"table I, {name}"}
        yield row("decoding step, ms", of_table, "estimated", paper_ms["greedy"], decode_ms)
    yield row("verification, ms", in_text, "estimated", amusd.SECTION_4A_MS["verify"], verify_ms)
    if runs is None:
        return
    sample, of_run = read_sample(runs), case | {"from": "run file, sample 0"}
    yield row("draft of a token, ms", of_run, "identity", 1000 * sample.sd.draft_s, draft_ms)
    yield row("verification, ms", of_run, "estimated", 1000 * sample.sd.verify_s, verify_ms)
    token_ms = 1000 * float(np.median(sample.greedy.token_times))
    yield row("decoding step, ms", of_run, "estimated", token_ms, decode_ms)


def pair_of(target: str, drafter: str, device: str) -> HardwareProfile:
    """Return the estimated times of a pair on one device, by AMUSD's host."""
    return estimated_profile(*(placed_of(f"{name}@{device}", engine="eager") for name in (target, drafter)))


def _starsd() -> Iterator[PaperRow]:
    """Return the rows of StarSD: returns of targets on either device, and its drafter's times."""
    local, remote = (pair_of("llama-2-7b", "eagle-llama-2-7b", device) for device in ("rtx-4090", "a100-80gb"))
    local_ms, remote_ms = 1000 * starsd.printed("idle_gap_s", 1), 1000 * starsd.remote_return_s(starsd.local_return_s())
    passes_ms = starsd.TABLE_2["mean_ms"][1]
    for quantity, device, paper_ms, step, tokens in (
        ("return time Z (T_idle at N = 1), ms", "rtx-4090", local_ms, local.verify, STARSD_TREE),
        ("return time Z (from N = 6), ms", "a100-80gb", remote_ms, remote.verify, STARSD_TREE),
        ("t_s, ms", "rtx-4090", starsd.draft_token_ms(3), local.draft, 1),
        ("draft inference (table 2, N = 2), ms", "rtx-4090", passes_ms, local.draft, STARSD_PASSES),
    ):
        case = {"host from": "AMUSD's llama-3.2-1b", "device": device}
        yield row(quantity, case, "estimated", paper_ms, 1000 * step.mean_s(tokens, 300))
