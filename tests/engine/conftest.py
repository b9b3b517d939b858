"""Models for the tests of the engine, which need its libraries."""

from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if all(map(find_spec, ("torch", "transformers", "zmq"))) else ["test_*.py"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained pair; see tests/helpers/pairs.py."""
    from tests.helpers.pairs import write_pair

    return write_pair(tmp_path_factory.mktemp("tiny"))
