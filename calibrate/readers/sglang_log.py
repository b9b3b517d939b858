"""SGLang's log: its lines `Decode batch` (load, mean acceptance length) and `Prefill batch` (lengths of prompts)."""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

import msgspec

from specfleet.calibration.readers.counts import MAX_DEPTH, counts_of_mean
from specfleet.calibration.readers.load import Spread, Way
from specfleet.calibration.readers.log_lines import NUMBER, WHOLE, LoadLine, load_between, numbers_in
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_lines
from specfleet.fleet.policies.shapes import CHAIN, MAX_NODES, Shape, dynamic


def _setting(name: str) -> str:
    """Return the pattern of a setting, as Python, JSON or the command write it: `--max-running-requests 32`."""
    return rf"""{name.replace("_", "[_-]")}[\\'"]*(?:\s*[=:]|\s)\s*{WHOLE}"""


LOAD = {
    "engine": rf"\[[^\]]* DP{WHOLE}\b",
    "tokens_per_s": rf"gen throughput \(token/s\): {NUMBER}",
    "running": rf"Decode batch.*#running-req: {WHOLE}",
    "waiting": rf"#queue-req: {WHOLE}",
    "kv_share": rf" token usage: {NUMBER}",
    "context": rf"#(?:full )?token: {WHOLE}",
    "length": rf"accept len: {NUMBER}",
}
SETTINGS = {
    "max_num_seqs": _setting("max_running_requests"),
    "max_num_batched_tokens": _setting("chunked_prefill_size"),
    "kv_tokens": _setting("max_total_num_tokens"),
}
DRAFTS = {
    "depth": _setting("speculative_num_steps"),
    "steps": _setting("decode_log_interval"),
    "width": _setting("speculative_eagle_topk"),
    "verified": _setting("speculative_num_draft_tokens"),
}
RETRACTED = rf"#retracted_reqs: {WHOLE}"
PREFILL = rf"Prefill batch.*#new-seq: {WHOLE}, #new-token: {WHOLE}(?:, #cached-token: {WHOLE})?"
NO_TREE = "no speculative_eagle_topk: drafts are taken to be chains, not trees (assumed)"
STEPS_KEY = "speculative_num_steps"
TIME = r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
STEPS = 40  # of each line, unless decode_log_interval says otherwise
RANK = r"\[\d{4}-\S+ [\d:.,]+([^]]*)\]"  # of the process that writes a line, after its time
IDLE = 5  # median times of a step, beyond which a line's steps were not one after the other


def read_sglang_log(files: Sequence[Path], depth: int | None = None) -> Recording:
    """Read the lines of all logs; other lines are left out.

    - `depth`: of drafts, where the log does not have its server's settings.

    The log has the mean acceptance length alone: every draft token is taken to pass as often. Raises InputError, naming
    file and key, where lines or the depth of drafts are missing, or the mean is more than the depth allows.
    """
    names = ", ".join(map(str, files))
    read = [line for path in files for _, line in read_lines(path)]
    lines = ((line, numbers_in([line], LOAD)) for line in read)
    decoding = [(line, numbers) for line, numbers in lines if "running" in numbers and "tokens_per_s" in numbers]
    loads = _with_idle([numbers for _, numbers in decoding])
    written = {name: int(value) for name, value in numbers_in(read, DRAFTS).items() if value}
    stated = {"depth": depth or 0, "steps": STEPS} | written
    if depth and written.get("verified") == depth + 1 and written.get("width", 1) == 1:
        stated["depth"] = depth
    lengths = [(numbers["length"], int(numbers["running"])) for numbers in loads if "length" in numbers]
    rows = sum(running for _, running in lengths)
    mean = sum(length * running for length, running in lengths) / rows if rows else 1.0
    if len({tuple(numbers_in([line], DRAFTS).items()) for line in read if "server_args=" in line}) > 1:
        raise InputError(f"{names}: servers whose drafts differ wrote it; give the log of one")
    settings, ranks = numbers_in(read, SETTINGS), {_rank(line) for line, _ in decoding}
    retracted = sum(int(match[1]) for line in read if (match := re.search(RETRACTED, line)) and _rank(line) in ranks)
    load = load_between(loads, mean, settings | {"preemptions": retracted})
    if load is None:
        raise InputError(f"{names}: holds no two lines `Decode batch` in turn with requests running and a throughput")
    prompt, tokens, cached_share, notes = _prompts(read, loads, settings.get("max_num_batched_tokens", math.inf))
    load = msgspec.structs.replace(
        load,
        ways=(*load.ways, *_by_clock([line for line, _ in decoding], stated["steps"], load.engines)),
        prompt_tokens=prompt,
        prompts_per_round=tokens / (stated["steps"] * len(decoding)),
        cached_share=cached_share,
        notes=tuple(notes),
    )
    if not rows:
        return Recording(source="SGLang's log", load=load)
    source = f"mean length of {len(lengths)} lines, {stated['steps']} steps each"
    rounds = rows * stated["steps"]
    counts = counts_of_mean(names, source, rounds, "accept len", mean, stated["depth"], STEPS_KEY, True)
    shape, notes = tree_of(names, stated["depth"], stated.get("width", 0), stated.get("verified", 0))
    return Recording(source="SGLang's log", counts=counts.noting(*notes), load=load, shape=shape)


def tree_of(origin: str, levels: int, width: int, verified: int) -> tuple[Shape, Sequence[str]]:
    """Return the shape of SGLang's drafts by its settings, and warnings; a chain where no setting says more.

    - `width` (tokens): `speculative_eagle_topk`. `verified` (tokens): `speculative_num_draft_tokens`, with the root.

    Raises InputError for a tree that is not EAGLE's, and for one that no server has.
    """
    if width <= 1 and verified <= levels + 1:
        return CHAIN, () if width or verified else (NO_TREE,)
    settings = f"speculative_eagle_topk = {width or None}, speculative_num_draft_tokens = {verified or None}"
    if width <= 1:
        chain = f"give --depth {verified - 1}, whose chain verifies as many" if verified <= MAX_DEPTH else "not read"
        raise InputError(f"{origin}: {settings}: a tree of {levels} levels that is not EAGLE's: {chain}")
    if not 1 < verified <= MAX_NODES or width > MAX_NODES:
        raise InputError(f"{origin}: {settings}; needs 2 to {MAX_NODES} tokens, and as many branches at most")
    shape = dynamic(width, verified - 1)
    note = (
        f"drafts are trees ({settings}): a row verifies {shape.nodes(levels) + 1} tokens; a level's branches are "
        "drafted in one pass, which is priced as that of one token (assumed)"
    )
    return shape, (note,)


def _rank(line: str) -> str:
    match = re.search(RANK, line)
    return match[1] if match else ""


def _with_idle(lines: Sequence[LoadLine]) -> list[LoadLine]:
    """Return the lines, marked where their throughput is also over an idle time of the server."""
    steps_s = [line["running"] * line.get("length", 1.0) / max(line["tokens_per_s"], 1e-9) for line in lines]
    usual_s = median([step_s for step_s in steps_s if step_s] or [0.0])
    return [line | {"idle": step_s > IDLE * usual_s} for line, step_s in zip(lines, steps_s, strict=True)]


def _prompts(
    read: Sequence[str], lines: Sequence[LoadLine], chunk: float
) -> tuple[Spread | None, int, float, Sequence[str]]:
    """Return the mean prompt, the tokens of all, the share that a cache had beside them, and warnings; without batches
    of prompts, by what running requests hold."""
    groups = [tuple(map(int, match.groups("0"))) for line in read if (match := re.search(PREFILL, line))]
    batches = [batch for batch in groups if batch[0]]
    if not batches:
        context = sum(line.get("context", 0) for line in lines) / sum(line["running"] for line in lines)
        if context < 1:
            return None, 0, 0.0, ["no lines `Prefill batch` and no #token: prompts are taken to have 1 token"]
        note = "no lines `Prefill batch`: prompts are #token / #running-req, answers so far included (inferred)"
        return Spread(context), 0, 0.0, [note]
    prompts, tokens, cached = map(sum, zip(*batches, strict=True))
    ends = prompts - sum(batch[1] >= chunk for batch in batches) or prompts  # where all are full, each is of a prompt
    note = f"{cached} tokens of prompts came from a cache, and are left out of their lengths"
    share = cached / max(cached + tokens, 1)
    return Spread(max(tokens / ends, 1.0)), tokens, share, [note] if cached else []


def _by_clock(lines: Sequence[str], steps: int, engines: int) -> list[Way]:
    """Return the way to the time of a step by the times of the lines, each after so many steps of its engine."""
    try:
        times = [datetime.fromisoformat(match[1]) for line in lines if (match := re.search(TIME, line))]
    except ValueError:  # a day or an hour that is none
        return []
    span_s = (times[-1] - times[0]).total_seconds() if len(times) == len(lines) else 0.0
    step_s = span_s * engines / (steps * (len(lines) - engines))
    return [Way("time between lines / steps", "inferred", step_s)] if span_s > 0 else []
