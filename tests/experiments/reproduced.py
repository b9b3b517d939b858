"""Whether every reproduction still gives the rows that it gave: `python -m tests.experiments.reproduced` (minutes).

The digests cover quantity, case, kind, the paper's number and ours to eight digits. `--write` stores today's.
"""

import hashlib
import json
import sys
from collections import defaultdict
from pathlib import Path

from specfleet.experiments.reproduce.every import every
from specfleet.experiments.reproduce.rows import Inputs

FILE = Path(__file__).with_name("reproduced.json")


def digests(rows: list[dict[str, object]]) -> dict[str, str]:
    """Fingerprint of each reproduction's rows, by name; rows are those of `every`, as plain values."""
    lines: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        case = dict(row["case"])  # type: ignore[call-overload]
        name = str(case.pop("of"))
        numbers = [None if row[side] is None else f"{row[side]:.7e}" for side in ("paper", "ours")]
        lines[name].append(json.dumps([row["quantity"], case, row["kind"], *numbers], sort_keys=True))
    return {name: hashlib.sha256("\n".join(of).encode()).hexdigest()[:16] for name, of in lines.items()}


def main() -> int:
    """Compute every reproduction and compare it with the file; 1 where one moved."""
    inputs = Inputs(trace=_option("--trace"), data=_option("--data"))
    now = digests([{name: getattr(row, name) for name in row.__struct_fields__} for row in every(inputs).rows])
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    kept = json.loads(FILE.read_text())
    moved = [name for name, digest in now.items() if kept.get(name) != digest]
    print(f"{len(now)} reproductions, moved: {', '.join(moved) or 'none'}")
    return 1 if moved else 0


def _option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


if __name__ == "__main__":
    sys.exit(main())
