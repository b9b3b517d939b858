"""`python -m bench` lists the studies, `python -m bench NAME` runs one."""

import ast
import sys
from pathlib import Path

from bench import harness
from specfleet.experiments.console.exits import run

STUDIES = (
    "replayed", "tiers", "shipped", "serving", "outside", "engines", "planned", "decoding", "exact", "steps", "star",
    "pair", "gpu", "speed", "coverage", "acceptance", "zoo", "aisimulate", "llmservingsim", "methods_adaptive",
    "estimates", "efficiencies", "serving_rows", "ranges", "published", "methods", "blocks",
    "specdecode_fig1",
)  # fmt: skip


def main() -> int:
    """Run the study that the command line names, or list all; return the exit status."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in STUDIES:
        return harness.main(arguments[0], arguments[1:])
    sys.stdout.write("".join(f"{name:16}  {about(name)}\n" for name in STUDIES))
    return 0 if not arguments or arguments[0] in ("-h", "--help") else 2


def about(name: str) -> str:
    """Return the first line of a study's docstring; the study is not imported."""
    text = ast.get_docstring(ast.parse((Path(__file__).parent / f"{name}.py").read_text()))
    assert text
    return text.splitlines()[0]


if __name__ == "__main__":
    run(main, "bench")
