"""Acceptance that others published: a row by target, drafter and data set, with its source.

fleet/data/published/acceptance.toml has the rows.
"""

from functools import cache
from typing import NamedTuple

import msgspec

from specfleet.fleet.acceptance.models import AcceptanceModel, PerPosition, rate_of_mean
from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.nearest import nearest
from specfleet.fleet.inputs.strict import convert


class Wanted(NamedTuple):
    """A user's wish for a published row. `said`: the option; `words`: of its name, and its temperature (t0)."""

    said: str
    words: tuple[str, ...]


Stated = AcceptanceModel | Wanted


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a drafter's drafts its target accepted on a data set.

    - `target`, `drafter`: shipped names; heads and modules by kind, prompt lookup as `lookup`.
    - `engine`, `temperature`: where the source states them.
    - `positions`: shares of all drafts that passed up to there.
    - `means`: depths (tokens), and mean accepted lengths with the bonus token, by depth.
    """

    target: str
    drafter: str
    data: str
    source: str
    engine: str = ""
    temperature: float | None = None
    positions: tuple[float, ...] = ()
    means: tuple[tuple[int, float], ...] = ()

    @property
    def name(self) -> str:
        """Its pair, data set and engine, by which errors and lists call it."""
        return " ".join(filter(None, (self.target, self.drafter, self.data, self.engine)))

    @property
    def words(self) -> set[str]:
        """The words that choose it among the rows of its pair."""
        return {*self.name.split(), "" if self.temperature is None else f"t{self.temperature:g}"}

    @property
    def basis(self) -> str:
        """How its positions are known."""
        depths = ", ".join(str(depth) for depth, _ in self.means)
        fitted = f"fitted to mean lengths at depth {depths}, one rate up to each" if depths else ""
        return " and ".join(filter(None, ("published by position" if self.positions else "", fitted)))

    @property
    def shares(self) -> str:
        """Its shares by position, in a line."""
        return ", ".join(f"{share:.2g}" for share in self.model().reached())

    def model(self) -> PerPosition:
        """Return the published positions, and beyond them, up to each mean, those of one rate by which it holds."""
        reached = list(self.positions)
        for depth, mean in self.means:
            last, further = reached[-1] if reached else 1.0, depth - len(reached)
            rate = rate_of_mean(1 + (mean - 1 - sum(reached)) / last, further)
            reached += [last * rate**place for place in range(1, further + 1)]
        return PerPosition(survival=tuple(reached))


@cache
def published_rows() -> dict[str, Published]:
    """Return the rows by name."""
    rows = [convert(row, Published, "acceptance.toml") for row in shipped_tables("published")["acceptance"]["rows"]]
    return {row.name: row for row in rows}


def find_published(wanted: Wanted, target: str, drafter: str) -> Published:
    """Return the one row of a pair with the wanted words, or another target's by its whole name; else InputError."""
    rows, pair = published_rows(), f"{target} with {drafter}"
    of_pair = {name: row for name, row in rows.items() if (row.target, row.drafter) == (target, drafter)}
    fitting = [row for row in of_pair.values() if row.words.issuperset(wanted.words)]
    if len(fitting) > 1:
        choices = ", ".join(":".join(filter(None, ("published", row.data, row.engine))) for row in fitting)
        raise InputError(f"{wanted.said}: {len(fitting)} rows fit {pair}; choose one: {choices}")
    if not fitting:
        of_others = [row for row in rows.values() if row.drafter == drafter or "=" in wanted.said]
        fitting = [row for row in of_others if set(row.name.split()) <= set(wanted.words) <= row.words]
    if not fitting:
        asked = " ".join((target, drafter, *wanted.words))
        raise InputError(
            f"{wanted.said}: no row for {pair}{''.join(f', {word}' for word in wanted.words)}; {nearest(asked, rows)}; "
            "`specfleet plan --list acceptance` lists all; DRAFTER='published:WHOLE NAME' borrows that of another model"
        )
    return fitting[0]
