"""`python -m tests.faults --kills 100 --seed 0`: fleets of real processes under scripts, up to that number of kills."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.kills import NAMES, check, run_killed
from tests.helpers.pairs import write_pair

KILLS = 8  # of each script


def main() -> None:
    """Run fleets, check them, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of processes, in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first script; each has its own")
    options = parser.parse_args()
    events, seed, began_s = Counter[str](), options.seed, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        pair = write_pair(Path(folder))
        while events["killed"] < options.kills:
            name = NAMES[seed % len(NAMES)]
            found = run_killed(name, pair, seed, KILLS)
            check(found)
            events += found.events
            print(
                f"{events['killed']} processes killed in {time.monotonic() - began_s:.0f} s; seed {seed} ({name}): "
                f"{found.events['killed']} killed, {found.events['overdue']} drafts given up; all texts are those of "
                "plain decoding, all logs replay, no process is left",
                flush=True,
            )
            seed += 1
    print(", ".join(f"{count} {event}" for event, count in sorted(events.items())))


if __name__ == "__main__":
    main()
