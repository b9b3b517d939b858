"""Models for the tests of the engine."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained pair; see tests/helpers/pairs.py."""
    from tests.helpers.pairs import write_pair

    return write_pair(tmp_path_factory.mktemp("tiny"))
