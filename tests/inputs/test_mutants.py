"""Some mutants of every kind of file; a larger EACH tries as many as one likes."""

from pathlib import Path

import pytest

from tests.helpers.marks import slow
from tests.inputs.engine_kinds import ENGINE_KINDS
from tests.inputs.kinds import KINDS, standing_in
from tests.inputs.law import judged
from tests.inputs.mutants import tried
from tests.inputs.reader_kinds import READER_KINDS

EACH = 10
EVERY = KINDS | READER_KINDS | ENGINE_KINDS


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
