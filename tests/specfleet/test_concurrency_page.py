"""docs/concurrency.md: its command runs as it stands there, and its table is what it prints."""

import re
import shlex

import pytest

from tests.helpers.processes import ROOT, specfleet

PAGE = (ROOT / "docs" / "concurrency.md").read_text()
(COMMAND,) = re.findall(r"```console\n\$ (.*?)\n```", PAGE, re.DOTALL)
TABLE = re.findall(r"^\| [^|]+? \| (\d+ \([\d.]+\).*?) \|$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_the_pages_table_is_what_its_command_prints() -> None:
    words = shlex.split(COMMAND.replace("\\\n", " "))
    process = specfleet(*words[1:])
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    printed = [re.findall(r"(\d+) \(([\d.]+), \d+", line) for line in out.splitlines() if re.search(r"\(.*, \d+", line)]
    shown = [re.findall(r"(\d+) \(([\d.]+)\)", row) for row in TABLE]
    assert len(shown) == 4
    assert [row for row in printed if len(row) == 4] == shown
