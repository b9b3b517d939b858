"""Some mutants of every kind of file; `python -m tests.inputs` tries thousands."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.marks import slow
from tests.inputs.every import EVERY
from tests.inputs.kinds import KINDS
from tests.inputs.law import judged
from tests.inputs.mutants import tried

EACH = 10


@pytest.fixture(autouse=True)
def processes_are_real_ones_again_afterwards() -> Iterator[None]:
    """What the engine's kinds put in the place of a node's process must not reach other tests."""
    yield
    serve = sys.modules.get("engine.runtime.serve")
    if serve is not None:
        serve.NodeProcess = sys.modules["engine.runtime.process"].NodeProcess  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name if name in KINDS else slow(name) for name in EVERY])
def test_a_damaged_file_is_refused_in_one_line_or_run_rightly(name: str, tmp_path: Path) -> None:
    kind, good = EVERY[name], tmp_path / "good"
    good.mkdir()
    kind.write(good)
    for command in dict.fromkeys(kind.commands if kind.files else ()):
        assert judged(command, good, kind.statuses).verdict == "right", f"the good file: {' '.join(command)}"
    (good / "out.parquet").unlink(missing_ok=True)
    mutants = [tried(name, kind, number, good, tmp_path) for number in range(EACH)]
    assert [mutant for mutant in mutants if mutant.outcome.verdict == "wrong"] == []
