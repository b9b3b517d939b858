"""A plugin of pytest that records which tests execute which line, how long each takes, and which fail unmutated."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

RECORD = "SPECFLEET_MUTATION_RECORD"  # environment: where the record is written
WATCHED = "SPECFLEET_MUTATION_FILES"  # environment: the files to watch, as a list in JSON


class Recorder:
    """Sees the tests of one run."""

    def __init__(self, watched: list[str]) -> None:
        self.coverage = coverage.Coverage(data_file=None, include=watched, config_file=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Book the lines that run during a test as that test's."""
        self.coverage.switch_context(item.nodeid)
        result = yield
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took and how it ended."""
        self.seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the record."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {}
        for path in data.measured_files():
            tests_of = data.contexts_by_lineno(path)
            lines[os.path.relpath(path)] = {line: sorted(filter(None, tests)) for line, tests in tests_of.items()}
        record = {"seconds": self.seconds, "failed": sorted(self.failed), "lines": lines}
        Path(os.environ[RECORD]).write_text(json.dumps(record), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record."""
    config.pluginmanager.register(Recorder(json.loads(os.environ[WATCHED])))
