"""Whether every reproduction still gives the rows that it gave: `python -m tests.experiments.reproduced` (minutes).

The digests cover quantity, case, kind, the paper's number and ours to eight digits. `--trace FILE` adds a run file of
AMUSD's authors, `--data FOLDER` the studies of `bench` on data of others; `--write` stores today's.
"""

import argparse
import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from specfleet.experiments.reproduce.every import made, names
from specfleet.experiments.reproduce.rows import Reproduction

FILE = Path(__file__).with_name("reproduced.json")
STUDIES = ("estimates", "specdecode_fig1", "serving_rows", "published")


def digest(reproduction: Reproduction) -> str:
    """Fingerprint of a reproduction's rows."""
    lines = []
    for row in reproduction.rows:
        numbers = [None if number is None else f"{number:.7e}" for number in (row.paper, row.ours)]
        lines.append(json.dumps([row.quantity, row.case, row.kind, *numbers], sort_keys=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def reproductions(options: argparse.Namespace) -> Iterator[Reproduction]:
    """Compute all that the options allow; `options.names` picks some."""
    for name in names(options.trace):
        if name in (options.names or [name]):
            yield made(name, options.trace)
    for name in STUDIES if options.data else ():
        if name in (options.names or [name]):
            yield from importlib.import_module(f"bench.{name}").study(options).reproduced


def main() -> int:
    """Compute reproductions and compare them with the file; 1 where one moved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    kept, moved = json.loads(FILE.read_text()), []
    for reproduction in reproductions(options):
        if kept.get(reproduction.name) != (now := digest(reproduction)):
            moved.append(reproduction.name)
            kept[reproduction.name] = now
        print(f"{reproduction.name}: {'moved' if reproduction.name in moved else 'as before'}", flush=True)
    if options.write:
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"moved: {', '.join(moved) or 'none'}")
    return int(bool(moved) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
