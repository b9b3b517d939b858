"""SGLang's log: its lines `Decode batch` (load, mean acceptance length) and `Prefill batch` (lengths of prompts)."""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from calibrate.readers.counts import recording_of_mean
from calibrate.readers.load import Spread, Way
from calibrate.readers.log_lines import NUMBER, WHOLE, load_between, numbers_in
from calibrate.readers.recording import Recording
from fleet.errors import InputError
from fleet.inputs.text import read_lines

LOAD = {
    "engine": rf"\[[^\]]* DP{WHOLE}\b",
    "tokens_per_s": rf"gen throughput \(token/s\): {NUMBER}",
    "running": rf"Decode batch.*#running-req: {WHOLE}",
    "waiting": rf"#queue-req: {WHOLE}",
    "kv_share": rf" token usage: {NUMBER}",
    "preemptions": rf"#retracted-req: {WHOLE}",
    "length": rf"accept len: {NUMBER}",
}
SETTINGS = {
    "max_num_seqs": rf"max_running_requests=\s*{WHOLE}",
    "max_num_batched_tokens": rf"chunked_prefill_size=\s*{WHOLE}",
    "kv_tokens": rf"max_total_num_tokens=\s*{WHOLE}",
}
DRAFTS = {"depth": rf"speculative_num_steps=\s*{WHOLE}", "steps": rf"decode_log_interval=\s*{WHOLE}"}
PREFILL = rf"Prefill batch.*#new-seq: {WHOLE}, #new-token: {WHOLE}(?:, #cached-token: {WHOLE})?"
STEPS_KEY = "speculative_num_steps"
TIME = r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
STEPS = 40  # of each line, unless decode_log_interval says otherwise


def read_sglang_log(files: Sequence[Path], depth: int | None = None) -> Recording:
    """Read the lines of all logs; other lines are left out.

    - `depth`: of drafts, where the log does not have its server's settings.

    The log has the mean acceptance length alone: every draft token is taken to pass as often. Raises InputError, naming
    file and key, where lines or the depth of drafts are missing, or the mean is more than the depth allows.
    """
    names = ", ".join(map(str, files))
    read = [line for path in files for _, line in read_lines(path)]
    lines = ((line, numbers_in([line], LOAD)) for line in read)
    decoding = [(line, one) for line, one in lines if "running" in one and "tokens_per_s" in one]
    written = {name: int(value) for name, value in numbers_in(read, DRAFTS).items() if value}
    stated = {"depth": depth or 0, "steps": STEPS} | written
    lengths = [(one["length"], int(one["running"])) for _, one in decoding if "length" in one]
    rows = sum(running for _, running in lengths)
    mean = sum(length * running for length, running in lengths) / rows if rows else 1.0
    settings = numbers_in(read, SETTINGS)
    load = load_between([one for _, one in decoding], mean, settings)
    if load is None:
        raise InputError(f"{names}: holds no two lines `Decode batch` in turn with requests running and a throughput")
    prompt, tokens, cached = _prompts(read, settings.get("max_num_batched_tokens", math.inf))
    load = msgspec.structs.replace(
        load,
        ways=(*load.ways, *_by_clock([line for line, _ in decoding], stated["steps"], load.engines)),
        prompt_tokens=prompt,
        prompts_per_round=tokens / (stated["steps"] * len(decoding)),
        notes=(f"{cached} tokens of prompts came from a cache, and are left out of their lengths",) if cached else (),
    )
    if not rows:
        return Recording(format="SGLang's log, without speculation", acceptance=None, depth=0, load=load)
    source = f"mean length of {len(lengths)} lines, {stated['steps']} steps each"
    return recording_of_mean(
        "SGLang's log", names, source, rows * stated["steps"], "accept len", mean, stated["depth"], STEPS_KEY,
        stated=mean, load=load,
    )  # fmt: skip


def _prompts(read: Sequence[str], chunk: float) -> tuple[Spread | None, int, int]:
    """Return the mean prompt, the tokens of all, and those that a cache had.

    A batch of a full chunk ends within a prompt.
    """
    found = [tuple(map(int, one.groups("0"))) for line in read if (one := re.search(PREFILL, line))]
    batches = [batch for batch in found if batch[0]]
    if not batches:
        return None, 0, 0
    prompts, tokens, cached = map(sum, zip(*batches, strict=True))
    ends = prompts - sum(batch[1] >= chunk for batch in batches) or prompts  # where all are full, each is of a prompt
    return Spread(max(tokens / ends, 1.0)), tokens, cached


def _by_clock(lines: Sequence[str], steps: int, engines: int) -> list[Way]:
    """Return the way to the time of a step by the times of the lines, each after so many steps of its engine."""
    try:
        times = [datetime.fromisoformat(one[1]) for line in lines if (one := re.search(TIME, line))]
    except ValueError:  # a day or an hour that is none
        return []
    span_s = (times[-1] - times[0]).total_seconds() if len(times) == len(lines) else 0.0
    step_s = span_s * engines / (steps * (len(lines) - engines))
    return [Way("time between lines / steps", "inferred", step_s)] if span_s > 0 else []
