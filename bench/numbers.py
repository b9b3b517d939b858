"""Types of numbers on the command lines of studies."""

import argparse
import math


def whole(text: str, least: int = 1) -> int:
    """Return a number of things; ArgumentTypeError unless it is a whole one from `least` on."""
    number = int(text) if text.strip().isdecimal() else -1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: whole numbers from {least} on")
    return number


def seed(text: str) -> int:
    """Return a seed; ArgumentTypeError unless it is a whole number from 0 on."""
    return whole(text, 0)


def not_negative(text: str) -> float:
    """Return a quantity that may be nothing; ArgumentTypeError unless it is a finite number from 0 on."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers from 0 on")
    return number


def positive(text: str) -> float:
    """Return a quantity; ArgumentTypeError unless it is a finite number above 0."""
    if not_negative(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers above 0")
    return float(text)
