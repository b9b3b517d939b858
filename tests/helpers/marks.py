"""Marks of single cases."""

from typing import Any

import pytest


def slow(*values: object, **named: Any) -> Any:
    """A case outside of the quick loop, for `pytest.param`."""
    return pytest.param(*values, marks=pytest.mark.slow, **named)
