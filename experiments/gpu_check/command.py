"""Run the check: `python -m experiments.gpu_check`. What was interrupted goes on where it stopped."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments.gpu_check.parts import PARTS, Folder, run_part
from experiments.gpu_check.place import Place, say
from experiments.terminal.exits import keeping, run_child
from fleet.files import check_folder

NO_DEVICE = "no cuda device on this host; nothing was checked"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status: 1 if something is broken, 2 without a device."""
    options = parsed(arguments)
    if options.list:
        sys.stdout.write("".join(f"{name:16}{part.about}\n" for name, part in PARTS.items()))
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        say(NO_DEVICE)
        return 2
    check_folder(options.out)
    with keeping(options.out):
        return check(options)


def check(options: argparse.Namespace) -> int:
    """Run one part here, or each that is not done yet in a process of its own; return the exit status."""
    place, folder = Place(torch.device(options.device), options.tiny), Folder(options.out)
    if options.part:
        well = run_part(options.part, folder, place, options.again)
        folder.merge(place)
        return 0 if well else 1
    for name in PARTS:
        if options.again or folder.read(name, place) is None:
            alone(name, options)
        else:
            say(f"{name}: done before")
    well = folder.merge(place)
    say(f"all results are in {options.out / 'check.json'}" + ("" if well else "; something is broken or missing"))
    return 0 if well else 1


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu_check", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the parts and stop")
    parser.add_argument("--part", choices=list(PARTS), help="run only this one")
    parser.add_argument("--again", action="store_true", help="also what is done already")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of the results")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu only with --tiny")
    parser.add_argument("--tiny", action="store_true", help="tiny random models, few repetitions: to test the check")
    options = parser.parse_args(arguments)
    if options.device == "cpu" and not options.tiny:
        parser.error("--device cpu needs --tiny: what it measures is no result")
    return options


def alone(name: str, options: argparse.Namespace) -> None:
    """Run a part in a process of its own: its memory goes with it, and so does a device error."""
    command = [sys.executable, "-m", "experiments.gpu_check", "--part", name, "--out", str(options.out)]
    command += ["--device", options.device, "--again", *(["--tiny"] if options.tiny else [])]
    ended = run_child(command)
    if ended.returncode not in (0, 1):
        say(f"{name}: its process ended with status {ended.returncode}")
