"""`python -m tests.fuzz --messages 1000000 --seed 0`: broken peers in memory, up to that number of messages."""

import argparse
import time
from collections import Counter

from tests.fuzz.broken import check, serve_beside_broken

BATCH = 50_000  # messages a fleet


def main() -> None:
    """Serve, check, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first fleet; each of 50,000 messages has its own")
    options = parser.parse_args()
    sent, seed, counts, began_s = 0, options.seed, Counter[str](), time.monotonic()
    while sent < options.messages:
        found = serve_beside_broken(min(BATCH, options.messages - sent), seed)
        check(found)
        sent, seed, counts = sent + found.sent, seed + 1, counts + Counter(found.counts)
        print(f"{sent} messages in {time.monotonic() - began_s:.0f} s: all texts true, all logs replay", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if count))


if __name__ == "__main__":
    main()
