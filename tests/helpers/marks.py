"""Marks of single cases."""

from typing import Any

import pytest


def slow(*values: object, **named: Any) -> Any:
    """A case that the quick loop leaves out, as `pytest.param` writes it."""
    return pytest.param(*values, marks=pytest.mark.slow, **named)
