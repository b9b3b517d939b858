"""What a forge runs are targets of the Makefile, and notebooks run from top to bottom."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_steps_of_workflows_are_make_targets() -> None:
    targets = set(" ".join(re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)).split())
    steps = [step for file in WORKFLOWS for step in re.findall(r"- run: (.*)", file.read_text())]
    named = {step.removeprefix("make ") for step in steps} - {"${{ matrix.bound }}"}
    assert named
    assert named <= targets
    assert {"lowest", "newest"} <= targets


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102  (our own file)
    assert list(tmp_path.rglob("*.pdf"))
