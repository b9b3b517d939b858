"""Types of numbers on the command lines of studies."""

import argparse
import math


def whole(text: str) -> int:
    """Return a number of things; ArgumentTypeError unless it is a whole one from 1 on."""
    number = int(text) if text.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: whole numbers from 1 on")
    return number


def seed(text: str) -> int:
    """Return a seed; ArgumentTypeError unless it is a whole number from 0 on."""
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: whole numbers from 0 on")
    return int(text)


def positive(text: str) -> float:
    """Return a quantity; ArgumentTypeError unless it is a finite number above 0."""
    number = _real(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers above 0")
    return number


def not_negative(text: str) -> float:
    """Return a quantity that may be nothing; ArgumentTypeError unless it is a finite number from 0 on."""
    number = _real(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers from 0 on")
    return number


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
