"""SGLang's log: its lines `Decode batch` (load, mean acceptance length) and `Prefill batch` (lengths of prompts)."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from calibrate.readers.load import Spread, Way
from calibrate.readers.log_lines import LoadLine, load_between, settings_in
from calibrate.readers.recording import Recording
from calibrate.readers.requests import MOST
from fleet.acceptance.models import Geometric, expected_accepted
from fleet.errors import InputError
from fleet.inputs.text import read_lines

WHOLE, NUMBER = r"(\d{1,12})", r"(\d{1,12}(?:\.\d{1,9})?)"
RUNNING, WAITING = re.compile(rf"Decode batch.*#running-req: {WHOLE}"), re.compile(rf"#queue-req: {WHOLE}")
USED, SPEED = re.compile(rf" token usage: {NUMBER}"), re.compile(rf"gen throughput \(token/s\): {NUMBER}")
RETRACTED, LENGTH = re.compile(rf"#retracted-req: {WHOLE}"), re.compile(rf"accept len: {NUMBER}")
PREFILL = re.compile(rf"Prefill batch.*#new-seq: {WHOLE}, #new-token: {WHOLE}")
SETTINGS = {
    "max_num_seqs": re.compile(rf"max_running_requests=\s*{WHOLE}"),
    "max_num_batched_tokens": re.compile(rf"chunked_prefill_size=\s*{WHOLE}"),
    "kv_tokens": re.compile(rf"max_total_num_tokens=\s*{WHOLE}"),
}
DRAFTS = {
    "depth": re.compile(rf"speculative_num_steps=\s*{WHOLE}"),
    "steps": re.compile(rf"decode_log_interval=\s*{WHOLE}"),
}
ASSUMED = "assumed: every draft token passes as often"
STEPS = 40  # of each line, unless decode_log_interval says otherwise
TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def read_sglang_log(files: Sequence[Path], depth: int | None = None) -> Recording:
    """Read the lines of all logs; other lines are left out.

    - `depth`: of drafts, where the log does not have its server's settings.

    The log has the mean acceptance length alone: every draft token is taken to pass as often. Raises InputError, naming
    file and key, where lines or the depth of drafts are missing, or the mean is more than the depth allows.
    """
    names = ", ".join(map(str, files))
    read = [line for path in files for _, line in read_lines(path)]
    decoding = [(line, one) for line in read if (one := _load_line(line)) is not None]
    written = {name: value for name, value in settings_in(read, DRAFTS).items() if value}
    stated = {"depth": depth or 0, "steps": STEPS} | written
    lengths = [(float(own[1]), load.running) for line, load in decoding if (own := LENGTH.search(line))]
    rows = sum(running for _, running in lengths)
    mean = sum(length * running for length, running in lengths) / rows if rows else 1.0
    load = load_between([one for _, one in decoding], mean, settings_in(read, SETTINGS))
    if load is None:
        raise InputError(f"{names}: holds no two lines `Decode batch` in turn with requests running and a throughput")
    load = msgspec.structs.replace(load, ways=(*load.ways, *_by_clock(decoding, stated["steps"])))
    if prefills := [(int(new[1]), int(new[2])) for line in read if (new := PREFILL.search(line)) and int(new[1])]:
        prompt = sum(tokens for _, tokens in prefills) / sum(count for count, _ in prefills)
        load = msgspec.structs.replace(load, prompt_tokens=Spread(max(prompt, 1.0)))
    if not rows:
        return Recording(format="SGLang's log, without speculation", acceptance=None, depth=0, load=load)
    levels, rounds = stated["depth"], rows * stated["steps"]
    if not levels:
        raise InputError(f"{names}: lacks speculative_num_steps, which a server writes first; state --depth")
    if levels > MOST or not 1 <= mean <= levels + 1:
        raise InputError(f"{names}: accept len = {mean:.4g}, speculative_num_steps = {levels}; needs 1 to steps + 1")
    return Recording(
        format="SGLang's log",
        acceptance=Geometric(_beta(mean - 1, levels)),
        depth=levels,
        rounds=rounds,
        accepted=round(rounds * (mean - 1)),
        stated=mean,
        sources={"acceptance": f"mean length of {len(lengths)} lines, {stated['steps']} steps each; {ASSUMED}"},
        load=load,
    )


def _load_line(line: str) -> LoadLine | None:
    running, speed = RUNNING.search(line), SPEED.search(line)
    if running is None or speed is None:
        return None
    waiting, used, retracted = (one.search(line) for one in (WAITING, USED, RETRACTED))
    return LoadLine(
        tokens_per_s=float(speed[1]),
        running=int(running[1]),
        waiting=int(waiting[1]) if waiting else 0,
        kv_share=float(used[1]) if used else 0.0,
        preemptions=int(retracted[1]) if retracted else 0,
    )


def _by_clock(decoding: Sequence[tuple[str, LoadLine]], steps: int) -> Iterator[Way]:
    """Yield the time of a step by the times of the lines, each of which follows so many steps."""
    try:
        times = [datetime.fromisoformat(one[1]) for line, _ in decoding if (one := TIME.search(line))]
    except ValueError:  # a day or an hour that is none
        return
    span_s = (times[-1] - times[0]).total_seconds() if len(times) == len(decoding) else 0.0
    if span_s > 0:
        yield Way("time between lines / steps", "inferred", span_s / (steps * (len(times) - 1)))


def _beta(accepted: float, depth: int) -> float:
    """Return the probability with which so many tokens pass on average, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_accepted(Geometric(middle), depth) < accepted else (low, middle)
    return high
