"""What is shown while nodes work that were started here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specfleet.fleet.records.progress import Progress
    from specfleet.fleet.scenario.scenario import Scenario


@contextmanager
def watched(
    title: str, scenario: "Scenario", targets: "Sequence[int] | None"
) -> Iterator["Callable[[Progress], None]"]:
    """Show what nodes are doing as one line; the yielded function takes their progress.

    `targets`: those whose requests have to be done; None for all.
    """
    from specfleet.experiments.watching.line import living_line, tokens_of
    from specfleet.fleet.scenario.resolve import resolve

    with living_line(title, tokens_of(resolve(scenario), targets)) as take:
        yield take
