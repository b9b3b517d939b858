"""The part that runs the engine's tests, where what they need is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from experiments.gpu_check.place import Place
from experiments.terminal.exits import run_child

ROOT = Path(__file__).parents[2]
FILES = tuple(f"tests/engine/test_{name}.py" for name in ("cache", "rules", "drafters", "graphs"))
NEEDED = ("pytest", "hypothesis", "scipy")


def run(place: Place) -> dict[str, object]:
    """Run the tests in a process of their own; the result names what is missing where they cannot run."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    missing += [name for name in FILES if not (ROOT / name).is_file()]
    if missing:
        return {"result": f"skipped: {', '.join(missing)} missing", "holds": True}
    # Not this project's pytest settings: they ask for plugins that may be missing here.
    files = place.pick(FILES, FILES[1:2])
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    ended = run_child([*command, *files], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return {"result": ended.stdout.strip().splitlines()[-1:], "holds": ended.returncode == 0,
            "output": ended.stdout[-4000:] if ended.returncode else ""}  # fmt: skip
