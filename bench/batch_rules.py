"""Batch rules that are compared: ours and those of Batch Speculative Decoding Done Right, by their names in tables."""

from typing import Any

RULES: dict[str, dict[str, Any]] = {
    "slots": {"policy": "slots"},
    "EqSpec": {"policy": "realign"},
    "EqSpec, online": {"policy": "realign", "fixed": False},
    "ExSpec": {"policy": "same-length"},
    "rollback": {"policy": "rollback"},
}
OURS = "slots"


def rule_of(name: str, size: int) -> dict[str, Any]:
    """Return a rule for batches of `size` rows as a table of a scenario; ExSpec's window holds three batches."""
    window = {"window": 3 * size} if name == "ExSpec" else {}
    return RULES[name] | {"size": size} | window
