"""The tests as they are: what an unmutated run shows, and from it which tests to run for a mutant."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.work_item import MutationSpec

from tests.mutation.recorder import RECORD, WATCHED

ROOMS = ("tests/fleet", "tests/sim")


@dataclass(frozen=True)
class Baseline:
    """Seconds by test of those that pass, the others, and by file and line the tests that execute it."""

    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[str, list[str]]]

    def tests_of(self, mutation: MutationSpec) -> list[str]:
        """Return the tests to run, fastest first: those that execute the changed lines.

        What runs when a module is imported is no single test's: then those that use the file, after them all others.
        """
        lines = self.lines.get(str(mutation.module_path), {})
        everyone = self._fastest_first({test for tests in lines.values() for test in tests})
        span = _statement(mutation)
        if span is None:
            return everyone + [test for test in self._fastest_first(set(self.seconds)) if test not in set(everyone)]
        return self._fastest_first({test for line in span for test in lines.get(str(line), ())})

    def _fastest_first(self, tests: set[str]) -> list[str]:
        return sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test))


def _statement(mutation: MutationSpec) -> range | None:
    """Return the lines of the innermost statement that is changed; None outside of functions' bodies."""
    line = mutation.start_pos[0]
    tree = ast.parse(Path(mutation.module_path).read_text(encoding="utf-8"))
    bodies = [
        statement
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for top in function.body
        for statement in ast.walk(top)
        if isinstance(statement, ast.stmt | ast.match_case)
    ]
    spans = []
    for statement in bodies:
        if isinstance(statement, ast.match_case):
            spans.append(range(statement.pattern.lineno, statement.body[0].lineno))
            continue
        inner = getattr(statement, "body", None)
        end = inner[0].lineno - 1 if inner else statement.end_lineno or statement.lineno
        spans.append(range(statement.lineno, max(end, statement.lineno) + 1))
    around = [span for span in spans if line in span]
    return min(around, key=len) if around else None


def take(folder: Path, files: list[str]) -> Baseline:
    """Run the quick tests in the current folder, under coverage; `folder` is for the record."""
    record = folder / "baseline.json"
    environment = {**os.environ, RECORD: str(record), WATCHED: json.dumps(files)}
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "--tb=no", *ROOMS]
    command += ["-p", "no:cacheprovider", "-p", "tests.mutation.recorder"]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if not record.exists():
        raise SystemExit("error: the unmutated tests did not run; see: pytest -m 'not slow' " + " ".join(ROOMS))
    content = json.loads(record.read_text(encoding="utf-8"))
    failed = content["failed"]
    seconds = {test: duration for test, duration in content["seconds"].items() if test not in failed}
    return Baseline(seconds, failed, content["lines"])
