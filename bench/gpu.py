"""Everything for one card, in parts of at most eight minutes: laws, step times, tokens/s, the stars, a server.

Each part is a study in a process of its own, which frees its memory at its end. Its results lie in a folder named after
the card. A rerun goes on after the parts that are done there, also on another host of the same card.
"""

import argparse
import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.harness import Aim, Options, Report, Row
from specfleet.engine.decoding.telemetry import host_facts
from specfleet.experiments.console.printing import remark
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_json
from specfleet.fleet.inputs.text import read_json

PART_S = 480.0
DONE = "parts.json"
PARTS: dict[str, tuple[str, ...]] = {  # words of `python -m bench`, by name; the quick and most telling ones first
    "laws": ("exact",),
    "steps-1b": ("steps", "--models", "llama-3.2-1b"),
    "steps-8b": ("steps", "--models", "llama-3.1-8b"),
    "star": ("star",),
    "decoding": ("decoding", "--precision", "bfloat16", "--sizes", "1", "8", "--repetitions", "3"),
    "serving": (
        "serving", "--seconds", "5", "--drafts", "none", "small model", "--rows", "1", "8", "16", "--loads", "0.6",
    ),
    "pair": ("pair",),
    "steps-14b": ("steps", "--models", "qwen3-14b"),
}  # fmt: skip
TINY: dict[str, tuple[str, ...]] = {  # words that make a part small
    "exact": ("--prompts", "1"), "steps": ("--tiny", "--precision", "float32"), "star": ("--tiny",),
    "pair": ("--tiny", "--precision", "float32", "--counts", "1", "2"),
    "decoding": ("--precision", "float32", "--prompts", "1", "--sizes"),
    "serving": ("--seconds", "1", "--drafts", "none", "--rows", "4", "--runs", "1", "--seeds", "2"),
}  # fmt: skip


class Done(msgspec.Struct, frozen=True):
    """A part that ended: on which card and torch, when, after how long, and with which exit status of its aims."""

    card: str
    torch: str
    date: str
    seconds: float
    status: int


OPTIONS: Options = {
    "--parts": {"nargs": "*", "choices": list(PARTS), "default": list(PARTS), "help": "parts, in this order"},
    "--tiny": {"action": "store_true", "help": "every part small, on the cpu where there is no card"},
}


def study(options: argparse.Namespace) -> Report:
    """Run the parts that are not done; say which are done, and what they took."""
    facts = host_facts()
    if "gpu" not in facts and not options.tiny:
        raise InputError("no cuda device; --tiny tries all parts on the cpu")
    card = facts.get("gpu", "cpu")
    title = "".join(letter if letter.isalnum() else "-" for letter in card.lower())
    folder = options.out / f"{title}{'-tiny' * options.tiny}"
    for name in options.parts:
        if done := done_in(folder, facts["torch"]).get(name):
            remark(f"{name}: done {done.date}")
            continue
        remark(f"{name}: at most {PART_S / 60:g} minutes")
        result, began_s = folder / name / f"{PARTS[name][0]}.json", time.monotonic()
        result.unlink(missing_ok=True)
        status = run_part(name, folder / name, options.tiny)
        if result.exists():  # aims that it missed are a result, too
            date = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
            keep(folder, name, Done(card, facts["torch"], date, time.monotonic() - began_s, status))
    found = done_in(folder, facts["torch"])
    rows: list[Row] = [
        {"part": name, **(msgspec.structs.asdict(found[name]) if name in found else {"card": "not done"})}
        for name in options.parts
    ]
    return Report(
        {f"parts on {card}": rows},
        [Aim("parts that are not done", sum(name not in found for name in options.parts), 0)],
    )


def run_part(name: str, folder: Path, tiny: bool) -> int:
    """Run a part in a process; return its exit status, 124 if it was cut off."""
    study_name, *words = PARTS[name]
    words += TINY[study_name] if tiny else ()
    command = [sys.executable, "-m", "bench", study_name, *words, "-o", str(folder)]
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603  (a study of ours)
    try:
        status = process.wait(PART_S)
    except subprocess.TimeoutExpired:
        remark(f"{name}: cut off; a rerun of steps or pair goes on after what it kept")
        status = 124
    finally:
        stop(process)
    return status


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a part, and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def done_in(folder: Path, torch: str) -> dict[str, Done]:
    """Return the parts that are done with that version of torch, by name."""
    path = folder / DONE
    found = msgspec.convert(read_json(path), dict[str, Done]) if path.exists() else {}
    return {name: done for name, done in found.items() if done.torch == torch}


def keep(folder: Path, name: str, done: Done) -> None:
    """Write that a part is done."""
    parts = done_in(folder, done.torch) | {name: done}
    write_json(parts, folder / DONE)
