"""What a report's figure is made of: lines with bands and dots, dots alone, and boxes in lanes; data, no pixels."""

import msgspec

from experiments.report.axes import Axis

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07D00", "#56B4E9", "#444444", "#882255")


class Dot(msgspec.Struct, frozen=True):
    """A point with what is told of it; `low` to `high` is its interval, if it has one. `hollow`: it has none."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None
    hollow: bool = False


class Series(msgspec.Struct, frozen=True):
    """Points of one colour and name; `joined` by a line, `dashed` if equations gave them; `ring`: framed; `faint`."""

    name: str
    colour: str
    dots: tuple[Dot, ...]
    joined: bool = True
    dashed: bool = False
    band: bool = False
    ring: bool = False
    faint: bool = False


class Box(msgspec.Struct, frozen=True):
    """A stretch of time in a lane."""

    lane: int
    begin: float
    end: float
    colour: str
    tip: str


class Chart(msgspec.Struct, frozen=True):
    """A figure: its title, its axes, what is in it, and a caption that says what it shows and how that is known."""

    title: str
    x: Axis
    y: Axis
    caption: str
    series: tuple[Series, ...] = ()
    boxes: tuple[Box, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()  # names and colours of boxes
    heading: str = ""  # what the names of series are values of


def colour_of(number: int) -> str:
    """Return the colour of a series by its number; distinct for colour-blind readers too."""
    return COLOURS[number % len(COLOURS)]
