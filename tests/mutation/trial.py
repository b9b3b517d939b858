"""One mutant: the change is made in a worker's own copy of the tree, the chosen tests run, the change is undone."""

import re
import resource
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from os import chdir, environ
from pathlib import Path

from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome

TEST_LIMIT_S = 40  # of one test, which takes at most some seconds unmutated
MEMORY_BYTES = 12 << 30  # a mutant may loop and append for ever


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: `verdict` is "killed", "timeout", "survived" or "no test"; `by`: what killed it."""

    mutation: MutationSpec
    verdict: str
    by: str
    before: str
    after: str


def settle_in(tree: str) -> None:
    """Give this worker process a copy of `tree` of its own, and work in it."""
    own = Path(tempfile.mkdtemp(dir=Path(tree).parent)) / "tree"
    shutil.copytree(tree, own, symlinks=True)  # with the times of files, so that compiled ones stay valid
    chdir(own)
    environ["PYTHONPATH"] = str(own)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def attempt(mutation: MutationSpec, tests: list[str], limit_s: float) -> Trial:
    """Try one mutant against `tests`, until one fails or the time is up."""
    arguments = Path("../tests-to-run").resolve()
    arguments.write_text("\n".join(tests), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "--tb=line", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--timeout={TEST_LIMIT_S}", "--timeout-method=signal", f"@{arguments}"]
    # Without a test the mutant is made all the same, to show it; `false` stands in for the tests then.
    result = mutate_and_test([mutation], shlex.join(command) if tests else "false", limit_s)
    output, changed = result.output or "", _changed(result.diff or "")
    if result.test_outcome is None or result.test_outcome == TestOutcome.INCOMPETENT:
        raise RuntimeError(f"{mutation.module_path}: {mutation.operator_name}: {output}")
    if not tests:
        return Trial(mutation, "no test", "", *changed)
    if result.test_outcome == TestOutcome.SURVIVED:
        return Trial(mutation, "survived", "", *changed)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?::.+?|\S+)(?: - |$)", output, re.MULTILINE)
    overtime = output == "timeout" or "Failed: Timeout" in output or "Timeout (>" in output
    return Trial(mutation, "timeout" if overtime else "killed", failed.group(1) if failed else "", *changed)


def _changed(diff: str) -> tuple[str, str]:
    """Return the changed lines of a diff, before and after."""
    lines = diff.splitlines()
    before = [line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")]
    after = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    return " ".join(before), " ".join(after)
