"""The names that an error offers for one that is not known."""

import pytest

from specfleet.fleet.inputs.nearest import nearest


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("hte", "nearest: the, heat, other"), ("THE", "nearest: the, other, heat"), ("x" * 10**6, "nearest: zzz,")],
)
def test_the_three_nearest_names_are_offered(typed: str, offered: str) -> None:
    assert nearest(typed, ["zzz", "heat", "the", "other", "the"]).startswith(offered)


def test_few_names_are_all_offered_in_their_order() -> None:
    assert nearest("q", ["b", "a"]) == "allowed: b, a"
    assert nearest("q", []) == "allowed: none"
