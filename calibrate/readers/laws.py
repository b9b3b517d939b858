"""Identities that formats promise: what a file says twice has to agree, to the digits that are written."""

from collections.abc import Sequence
from decimal import Decimal

from specfleet.fleet.errors import InputError


def same(origin: str, key: str, stated: int | None, meaning: str, counted: int) -> None:
    """Raise InputError where `key` = `stated`, if it is stated, is not what `meaning` comes to."""
    if stated not in (None, counted):
        raise InputError(f"{origin}: {key} = {stated} contradicts {meaning} = {counted}")


def rounds_to(origin: str, key: str, stated: float | None, meaning: str, computed: float) -> None:
    """Raise InputError where a quotient that was written, perhaps rounded, is not what `meaning` comes to."""
    if stated is not None and abs(stated - computed) > half_a_digit(stated) + 1e-9 * abs(computed):
        raise InputError(f"{origin}: {key} = {stated:.15g} contradicts {meaning} = {computed:.6g}")


def at_most(origin: str, key: str, stated: float, meaning: str, most: float) -> None:
    """Raise InputError where `key` = `stated` is more than it can be."""
    if stated > most:
        raise InputError(f"{origin}: {key} = {stated} exceeds {meaning} = {most}")


def falls(origin: str, key: str, values: Sequence[float], meaning: str, first: float) -> None:
    """Raise InputError where one of the values at positions 0, 1, ... is more than the one before it."""
    before = first
    for position, value in enumerate(values):
        at_most(origin, f"{key} {position}", value, meaning, before)
        before, meaning = value, f"{key} {position}"


def half_a_digit(stated: float) -> float:
    """Return by how much a number may have been rounded: half of its last written digit.

    A number that was read has lost its trailing zeros, so 2.5 may be 2.50 and is trusted to 0.05.
    """
    exponent = Decimal(repr(float(stated))).normalize().as_tuple().exponent
    return 0.501 * 10.0 ** min(int(exponent), -1)
