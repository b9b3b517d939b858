"""Everything for one card, in calls of at most five minutes: laws, step times, a star, a server, tokens/s.

Each part is a study in a process of its own, which frees its memory at its end. Its results lie in a folder named after
the card. A call begins the parts that fit into what is left of it. A further call goes on after the parts that are done
there, also on another host of the same card; those that began and did not end then come last.
"""

import argparse
import contextlib
import ctypes
import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bench.harness import Aim, Options, Report, Row
from specfleet.engine.decoding.telemetry import host_facts
from specfleet.experiments.console.printing import remark
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_json
from specfleet.fleet.inputs.text import read_json

CALL_S = 270.0  # of five minutes; the rest is for the start of Python, and for packing the results
DONE = "parts.json"
CUT = 124  # exit status of a part that was cut off
PARTS: dict[str, tuple[float, tuple[str, ...]]] = {  # seconds that it takes on an H100, estimated; words of `bench`
    "laws": (60.0, ("exact",)),
    "steps": (100.0, ("steps",)),
    "star": (200.0, ("star",)),
    "serving": (100.0, ("serving", "--seconds", "3", "--drafts", "none", "small model", "--rows", "--loads", "0.6")),
    "decoding": (55.0, ("decoding", "--precision", "bfloat16", "--prompts", "6", "--sizes")),
    "pair": (120.0, ("pair",)),  # in a call of its own
}
TINY: dict[str, tuple[str, ...]] = {  # words that make a part small
    "exact": ("--prompts", "1"), "steps": ("--tiny", "--precision", "float32"), "star": ("--tiny",),
    "pair": ("--tiny", "--precision", "float32", "--counts", "1", "2"),
    "decoding": ("--precision", "float32", "--prompts", "1", "--sizes"),
    "serving": ("--seconds", "1", "--drafts", "none", "--rows", "4", "--loads", "--runs", "1", "--seeds", "2"),
}  # fmt: skip


class Done(msgspec.Struct, frozen=True):
    """A part that began: its card and torch, when, seconds until its end (0 without one), exit status of its aims."""

    card: str
    torch: str
    date: str
    seconds: float
    status: int


OPTIONS: Options = {
    "--parts": {"nargs": "*", "choices": list(PARTS), "default": list(PARTS)[:-1], "help": "left out, all but pair"},
    "--seconds": {"type": float, "default": CALL_S, "help": "of this call; what does not fit is left to the next"},
    "--tiny": {"action": "store_true", "help": "every part small, on the cpu where there is no card"},
}


def study(options: argparse.Namespace) -> Report:
    """Run the parts that are not done, as far as they fit; say which are done, and what they took."""
    ends_s, facts = time.monotonic() + options.seconds, host_facts()
    if "gpu" not in facts and not options.tiny:
        raise InputError("no cuda device; --tiny tries all parts on the cpu")
    card = facts.get("gpu", "cpu")
    title = "".join(letter if letter.isalnum() else "-" for letter in card.lower())
    folder = options.out / f"{title}{'-tiny' * options.tiny}"
    began = begun_in(folder, facts["torch"])
    for name in sorted(options.parts, key=began.__contains__):
        if name in began and began[name].seconds:
            remark(f"{name}: done {began[name].date}")
            continue
        needs_s, began_s = PARTS[name][0], time.monotonic()
        if (left_s := ends_s - began_s) < needs_s:
            remark(f"{name}: takes {needs_s:g} s, and {left_s:.0f} s are left; a further call goes on")
            continue
        limit_s, date = min(left_s, 2 * needs_s), datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
        remark(f"{name}: at most {limit_s:.0f} s")
        result, done = folder / name / f"{PARTS[name][1][0]}.json", Done(card, facts["torch"], date, 0.0, CUT)
        result.unlink(missing_ok=True)
        keep(folder, name, done)  # so that a part that kills its call does not come first again
        status = run_part(name, folder / name, options.tiny, limit_s)
        if result.exists():  # aims that it missed are a result, too
            keep(folder, name, replace(done, seconds=time.monotonic() - began_s, status=status))
    found = {name: done for name, done in begun_in(folder, facts["torch"]).items() if done.seconds}
    rows: list[Row] = [
        {"part": name, **(msgspec.structs.asdict(found[name]) if name in found else {"card": "not done"})}
        for name in options.parts
    ]
    left = sum(name not in found for name in options.parts)
    return Report({f"parts on {card}": rows}, [Aim("parts that are not done", left, 0)])


def run_part(name: str, folder: Path, tiny: bool, limit_s: float) -> int:
    """Run a part in a process; return its exit status, `CUT` if it was cut off."""
    study_name, *words = PARTS[name][1]
    words += TINY[study_name] if tiny else ()
    command = [sys.executable, "-m", "bench", study_name, *words, "-o", str(folder)]
    process = subprocess.Popen(command, process_group=0, preexec_fn=end_with_parent)  # noqa: PLW1509, S603  (ours)
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        remark(f"{name}: cut off; a further call goes on after what steps, serving and pair kept")
        status = CUT
    finally:
        stop(process)
    return status


def end_with_parent() -> None:
    """Let Linux kill this process when its parent ends: a part that outlives a killed call would disturb the next."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a part, and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def begun_in(folder: Path, torch: str) -> dict[str, Done]:
    """Return the parts that began with that version of torch, by name."""
    path = folder / DONE
    found = msgspec.convert(read_json(path), dict[str, Done]) if path.exists() else {}
    return {name: done for name, done in found.items() if done.torch == torch}


def keep(folder: Path, name: str, done: Done) -> None:
    """Write that a part began or ended."""
    write_json(begun_in(folder, done.torch) | {name: done}, folder / DONE)
