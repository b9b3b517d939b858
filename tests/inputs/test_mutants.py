"""Some mutants of every kind of file; a larger EACH tries as many as one likes."""

from pathlib import Path

import pytest

from experiments.reproduce import amusd
from tests.helpers.marks import slow
from tests.inputs.engine_kinds import ENGINE_KINDS
from tests.inputs.every import EVERY
from tests.inputs.kinds import KINDS, standing_in
from tests.inputs.law import judged
from tests.inputs.mutants import tried

EACH = 10


@pytest.mark.parametrize("name", [slow(name) if name in ENGINE_KINDS else name for name in EVERY])
def test_damaged_files_are_refused_or_run_rightly(name: str, tmp_path: Path) -> None:
    kind, good = EVERY[name], tmp_path / "good"
    good.mkdir()
    kind.write(good)
    with standing_in(kind):
        for command in dict.fromkeys(kind.commands if kind.files else ()):
            outcome = judged(command, good, kind.statuses)
            assert outcome.verdict == "right", f"the good file: {' '.join(command)}: {outcome.says}"
        (good / "out.parquet").unlink(missing_ok=True)
        mutants = [tried(name, kind, number, good, tmp_path) for number in range(EACH)]
    assert [mutant for mutant in mutants if mutant.outcome.verdict == "wrong"] == []


def test_what_stands_in_for_something_slow_is_gone_afterwards(tmp_path: Path) -> None:
    """Written files change nothing: later tests of this process reproduce with all seeds."""
    kind, seeds = KINDS["AMUSD run"], amusd.SEEDS
    kind.write(tmp_path)
    assert seeds == amusd.SEEDS
    with standing_in(kind):
        assert amusd.SEEDS == 2
    assert amusd.SEEDS == seeds > 2
