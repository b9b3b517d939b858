"""Contestants in turn, and the table of what they did: means with intervals, and ratios taken pair by pair."""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fleet.records.intervals import student_t_interval


class Done(msgspec.Struct, frozen=True):
    """What a contestant did in one turn: units of work, and figures that the table shows the means of, by name.

    `time_s`: how long the work itself took, where preparing it is not part of the contest.
    """

    units: int
    figures: Mapping[str, float] = {}
    time_s: float | None = None


class Turn(msgspec.Struct, frozen=True):
    """A turn with its time."""

    done: Done
    time_s: float

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.done.units / self.time_s


Turns = Mapping[str, Sequence[Turn]]


def interleaved(contestants: Mapping[str, Callable[[int], Done]], rounds: int, title: str) -> dict[str, list[Turn]]:
    """Let every contestant do round i before any does round i + 1; the first, a cold one, is done twice."""
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for number in track(range(-1, rounds), title, console=Console(stderr=True), transient=True):
        for name, work in contestants.items():
            started_s = time.perf_counter()
            done = work(max(number, 0))
            turn = Turn(done, done.time_s or time.perf_counter() - started_s)
            if number >= 0:
                turns[name].append(turn)
    return turns


def show(title: str, unit: str, turns: Turns, base: str, times: bool = False) -> None:
    """Print mean rates with 95 % intervals, ratios to `base` taken pair by pair, and the figures of each contestant.

    Ratios are those of the base over each, or, `times`, how many times the base each is.
    """
    figures = list(dict.fromkeys(name for done in turns.values() for name in done[0].done.figures))
    table = Table(title=title, title_justify="left")
    for heading in ("contestant", unit, "95 % interval", f"times the {base}" if times else f"{base} over it", *figures):
        table.add_column(heading)
    base_rates = np.array([turn.rate for turn in turns[base]])
    for name, own in turns.items():
        rates = np.array([turn.rate for turn in own])
        ratios = rates / base_rates if times else base_rates / rates
        shown = [[turn.done.figures[figure] for turn in own if figure in turn.done.figures] for figure in figures]
        table.add_row(
            name,
            f"{rates.mean():,.0f}",
            "{:,.0f} .. {:,.0f}".format(*student_t_interval(rates)[-2:]),
            "{:.2f} ({:.2f} .. {:.2f})".format(ratios.mean(), *student_t_interval(ratios)[-2:]),
            *[f"{np.mean(values):.3g}" if values else "" for values in shown],
        )
    Console(width=170).print(table)
