"""The command `specfleet` with a real target that prints its texts as JSON."""

import json
import sys
from typing import Any

from specfleet.cli import main
from specfleet.engine.launch import by_hand

serve = by_hand.serve_node


def serve_and_print(*arguments: Any, **named: Any) -> dict[int, list[int]]:
    """As `serve_node`."""
    outputs = serve(*arguments, **named)
    if arguments[1] == "target":
        sys.stdout.write(json.dumps(outputs))
    return outputs


if __name__ == "__main__":
    by_hand.serve_node = serve_and_print
    main()
