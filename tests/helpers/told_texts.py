"""The command `specfleet`, but that a real target prints its texts as JSON."""

import json
import sys
from typing import Any

from engine.runtime import hosts
from specfleet.cli import main

serve = hosts.serve_verifier


def serve_and_print(*given: Any, **named: Any) -> dict[int, list[int]]:
    """As `serve_verifier`."""
    outputs = serve(*given, **named)
    sys.stdout.write(json.dumps(outputs))
    return outputs


if __name__ == "__main__":
    hosts.serve_verifier = serve_and_print
    main()
