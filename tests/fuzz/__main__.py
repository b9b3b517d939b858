"""`python -m tests.fuzz --messages 1000000 --seed 0`: attacks in memory, up to that number of messages."""

import argparse
import resource
import time
from collections import Counter

from tests.fuzz.attack import attack, check

BATCH = 50_000  # messages an attack


def main() -> None:
    """Attack, check, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first attack; each of 50,000 messages has its own")
    options = parser.parse_args()
    sent, seed, counts, began_s = 0, options.seed, Counter[str](), time.monotonic()
    while sent < options.messages:
        found = attack(min(BATCH, options.messages - sent), strangers=6, dishonest=True, seed=seed)
        check(found)
        sent, seed, counts = sent + found.sent, seed + 1, counts + Counter(found.counts)
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{sent} messages in {time.monotonic() - began_s:.0f} s: all texts true, all logs replay; the server held "
            f"at most {max(found.weights)} things; peak memory {memory_mb:.0f} MB",
            flush=True,
        )
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if count))


if __name__ == "__main__":
    main()
