"""Estimated step times against others' measurements: each estimate against the row it predicts.

No efficiency is used on the source that it was fitted on: those of the A100 estimate Vidur's H100 and the other way
round; those of both estimate engines that Vidur did not measure; the host's time a layer, from AMUSD's drafter,
estimates AMUSD's target and StarSD.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from specfleet.calibration.operators import estimated_s, of_other, read_operators
from specfleet.experiments.reproduce import amusd, starsd
from specfleet.experiments.reproduce.amusd_runs import read_sample
from specfleet.experiments.reproduce.rows import Inputs, Kind, PaperRow, Reproduction, in_parts, off_by, row
from specfleet.experiments.reproduce.specdecode_simulated import EAGLE_S, TARGET_S
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import roofline_of
from specfleet.fleet.hardware.profile import estimated_profile, placed_of
from specfleet.fleet.inputs.text import is_file
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

VIDUR = {"a100-80gb": "vidur-a100-llama2-7b-mlp.csv", "h100": "vidur-h100-llama2-7b-mlp.csv"}
SHOWN_TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 4096)


def vidur(folder: str | None) -> tuple[dict[str, list[PaperRow]], list[str]]:
    """Return the rows of each file that is there; and what to say of those that are not, and of whole files.

    The operators of a layer on a device are estimated with the efficiencies of the other one.
    """
    if folder is not None and not Path(folder).is_dir():
        raise InputError(f"--data {folder}: no folder; it holds {', '.join(VIDUR.values())}, or some of them")
    where = f"not in {folder}" if folder else "give --data FOLDER"
    rows, missing, wholes = dict[str, list[PaperRow]](), [], []
    for (device, name), other in zip(VIDUR.items(), reversed(VIDUR), strict=True):
        if folder is None or not is_file(file := Path(folder) / name):
            missing.append(f"no measurements of Vidur for {device} ({name}: {where})")
            continue
        own, errors = rows.setdefault(f"Vidur, operators of Llama-2-7B on {device}", []), []
        efficient = placed_of(f"llama-2-7b@{other}").device
        for one in read_operators(file):
            model = placed_of(f"llama-2-7b@{one.parallel}x{device}")
            model = msgspec.structs.replace(model, device=of_other(model.device, efficient))
            paper_s, ours_s = sum(one.times_s.values()), sum(estimated_s(model, one.tokens).values())
            errors.append(ours_s / paper_s - 1)
            if one.tokens in SHOWN_TOKENS:
                case = {"device": device, "efficiencies of": other, "workers": one.parallel, "tokens": one.tokens}
                own.append(row("operators of a layer, ms", case, "estimated", 1000 * paper_s, 1000 * ours_s))
        wholes.append(f"all {len(errors)} places of {name}: {off_by(errors)}")
    return rows, [*missing, *wholes]


AMUSD_RUNS = "amusd-a100-refactorchat-sample.json"
EAGLE_DEPTH = 3  # of the draft that the constants of SpecDecode-Bench's simulator time
# SpecDecode-Bench, figure 3: tokens a second without speculation, by data set and batch.
QWEN_TOKENS_PER_S = {
    "GSM8K": {1: 136, 16: 1885, 64: 5469, 128: 7983},
    "CNN": {1: 136, 16: 1778, 64: 4569, 128: 6674},
    "ShareGPT": {1: 135, 16: 1855, 64: 5206, 128: 7711},
    "InstructCoder": {1: 135, 16: 1888, 64: 5597, 128: 8377},
    "AIME": {1: 132, 8: 782, 16: 1150},
    "GPQA": {1: 135, 8: 909, 16: 1558},
}
GLM_TOKENS_PER_S = {"AIME": {1: 146, 2: 269, 4: 515}, "GPQA": {1: 141, 2: 266, 4: 515}}
CONTEXT = {"AIME": 5000, "GPQA": 5000}  # tokens, assumed; of all other sets:
SHORT_CONTEXT = 1500
STARSD_TREE = 60  # nodes that EAGLE-2 verifies, its default
STARSD_PASSES = 6  # of a draft: EAGLE-2's default depth of 5, and the root
ASSUMED = [
    "Vidur: efficiencies of the other device; its operators leave out attention, and are summed over one layer",
    (
        "SpecDecode-Bench: efficiencies of H100, from Vidur; an overhead of 1.2 ms a step is its own simulator's "
        "constant, and input"
    ),
    (
        "its EAGLE-3 head is driven from Python, a pass a token: engine eager. Memory alone would allow less than half "
        "of that; what the host does between the passes of a draft is no roofline's"
    ),
    (
        "its figure 3 prints no lengths: a mean context of 5000 tokens for AIME and GPQA, 1500 for other sets. Its "
        "rows are copies of one prompt, and use the same experts; its rates hold prefill and detokenisation"
    ),
    (
        "fitted: that copies use the same experts (GLM), and that the EAGLE-3 head waits for Python, was put in after "
        "these rows had been seen; the mean contexts and the sharpness of 1.5 were chosen with the others in view"
    ),
    (
        "AMUSD: efficiencies of A100, and the host's time a layer from its drafter, whose row is input. What its "
        "verification takes longer than its decoding is its program comparing tokens and cutting caches"
    ),
    (
        "StarSD does not print its models: Llama-2-7B with its EAGLE head, the host as AMUSD's. A return holds both "
        "ways over the link, a draft the choice of a tree's nodes: neither is a pass, and both are left out"
    ),
]


def estimates(inputs: Inputs) -> Reproduction:
    """Hold estimates against measurements of Vidur, SpecDecode-Bench, AMUSD and StarSD; `--data` has Vidur's files."""
    of_vidur, notes = vidur(inputs.data)
    of_others = {
        "SpecDecode-Bench's constants, Llama-3.1-8B on H100": _constants(),
        "SpecDecode-Bench's figure 3, Qwen3-8B on H100": _throughput("qwen3-8b@h100", QWEN_TOKENS_PER_S),
        "SpecDecode-Bench's figure 3, GLM-4.5-Air on 4 H100": _throughput(
            "glm-4.5-air@4xh100", GLM_TOKENS_PER_S, "fitted"
        ),
        "AMUSD, Llama-3 on A100": _amusd(inputs.data),
        "StarSD, an EAGLE-2 pair on RTX 4090 and A100": _starsd(),
    }
    return in_parts("estimates", of_vidur | of_others, [*notes, *ASSUMED])


def _constants() -> Iterator[PaperRow]:
    """Return the rows of the constants that SpecDecode-Bench's simulator fitted to vLLM."""
    target = estimated_profile(placed_of("llama-3.1-8b@h100")).verify
    case: dict[str, Any] = {"device": "h100", "efficiencies of": "h100"}

    def ours_s(fed: int, context: float = 0.0) -> float:
        """A batch of rows that feed one token each, or one row where there is no context."""
        return target.mean_s(1, context, fed, fed - 1) - target.base_s

    fixed_s, fed_s, cached_s = TARGET_S
    token_s, context_s = (ours_s(256) - ours_s(1)) / 255, (ours_s(64, 1000) - ours_s(64)) / 64_000
    drafting = "draft of 3 by EAGLE-3, fixed, ms"
    yield row("verification, fixed, ms", case, "estimated", 1000 * fixed_s, 1000 * ours_s(1))
    yield row("verification, a token fed (1 to 256), us", case, "estimated", 1e6 * fed_s, 1e6 * token_s)
    yield row("verification, a token in the cache, ns", case, "estimated", 1e9 * cached_s, 1e9 * context_s)
    yield row(drafting, case | {"engine": "eager"}, "fitted", 1000 * EAGLE_S[0], 1000 * _eagle_s("eager"))
    yield row(drafting, case | {"engine": "graphs"}, "identity", 1000 * EAGLE_S[0], 1000 * _eagle_s("graphs"))
    for batch, fed in ((1, 1), (1, 4), (16, 16), (16, 64), (64, 64), (64, 256)):
        context, each = 500, fed // batch
        paper_s = fixed_s + fed * fed_s + batch * context * cached_s
        batch_s = target.mean_s(each, context, batch, fed - each) - target.base_s
        place = case | {"batch": batch, "tokens": fed, "context": context}
        yield row("verification by these constants, ms", place, "identity", 1000 * paper_s, 1000 * batch_s)


def _eagle_s(engine: str) -> float:
    pair = estimated_profile(placed_of("llama-3.1-8b@h100"), placed_of("eagle3-llama-3.1-8b@h100", engine=engine))
    return pair.draft.mean_s(EAGLE_DEPTH) - pair.draft.base_s


def _throughput(place: str, printed: dict[str, dict[int, int]], kind: Kind = "estimated") -> Iterator[PaperRow]:
    """Return the rows of figure 3: plain decoding of copies of one prompt, the overhead of a step included."""
    one = placed_of(place)
    decode = StepTime(base_s=one.engine.step_s.value, roofline=roofline_of(one, alike=True))
    for name, by_batch in printed.items():
        for batch, paper in by_batch.items():
            case = {"place": place, "set": name, "batch": batch}
            ours = batch / decode.mean_s(1, CONTEXT.get(name, SHORT_CONTEXT), batch, batch - 1)
            yield row("plain decoding, tokens/s", case, kind, paper, ours)


def _amusd(folder: str | None) -> Iterator[PaperRow]:
    """Return the rows of AMUSD's paper, and of its authors' run file where the folder has it."""
    pair = estimated_profile(
        *(placed_of(f"{name}@a100-80gb", engine="eager") for name in ("llama-3.1-8b", "llama-3.2-1b"))
    )
    case: dict[str, Any] = {"device": "a100-80gb", "host from": "llama-3.2-1b"}
    context = 1000

    def ours_ms(step: str, tokens: int) -> float:
        return 1000 * float(getattr(pair, step).mean_s(tokens, context))

    draft_ms, decode_ms, verify_ms = ours_ms("draft", 1), ours_ms("decode", 1), ours_ms("verify", amusd.DEPTH + 1)
    in_text = case | {"from": "section IV-A"}
    yield row("draft of a token, ms", in_text, "input", amusd.DRAFT_MS, draft_ms)
    for name, (plain_ms, *_) in amusd.TABLE_1_MS.items():
        yield row("decoding step, ms", case | {"from": f"table I, {name}"}, "estimated", plain_ms, decode_ms)
    yield row("verification, ms", in_text, "estimated", amusd.VERIFY_MS, verify_ms)
    file = Path(folder or "") / AMUSD_RUNS
    if folder is None or not is_file(file):
        return
    sample, of_run = read_sample(file), case | {"from": "run file, sample 0"}
    yield row("draft of a token, ms", of_run, "identity", 1000 * sample.sd.draft_s, draft_ms)
    yield row("verification, ms", of_run, "estimated", 1000 * sample.sd.verify_s, verify_ms)
    token_s = float(np.median(sample.greedy.token_times))
    yield row("decoding step, ms", of_run, "estimated", 1000 * token_s, decode_ms)


def _starsd() -> Iterator[PaperRow]:
    """Return the rows of StarSD: returns of targets on either device, and its drafter's times."""
    pairs: dict[str, HardwareProfile] = {
        device: estimated_profile(
            *(placed_of(f"{name}@{device}", engine="eager") for name in ("llama-2-7b", "eagle-llama-2-7b"))
        )
        for device in ("rtx-4090", "a100-80gb")
    }
    remote_ms = 1000 * starsd.remote_return_s(starsd.local_return_s())
    verify, draft = pairs["rtx-4090"].verify, pairs["rtx-4090"].draft
    printed = (
        ("return time Z (T_idle at N = 1), ms", "rtx-4090", 1000 * starsd.IDLE_GAP_S[0], verify, STARSD_TREE),
        ("return time Z (from N = 6), ms", "a100-80gb", remote_ms, pairs["a100-80gb"].verify, STARSD_TREE),
        ("t_s, ms", "rtx-4090", starsd.DRAFT_TOKEN_MS[3], draft, 1),
        ("draft inference (table 2, N = 2), ms", "rtx-4090", starsd.DRAFT_MS[2], draft, STARSD_PASSES),
    )
    for quantity, device, paper_ms, step, tokens in printed:
        case = {"host from": "AMUSD's llama-3.2-1b", "device": device}
        yield row(quantity, case, "estimated", paper_ms, 1000 * step.mean_s(tokens, 300))
