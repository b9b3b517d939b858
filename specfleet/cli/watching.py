"""What is shown while nodes work that were started here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specfleet.fleet.records.metrics.counters import Counters
    from specfleet.fleet.scenario.scenario import Scenario


@contextmanager
def watched(
    title: str, scenario: "Scenario", targets: "Sequence[int] | None", metrics_port: int | None, metrics_host: str
) -> Iterator["Callable[[Counters], None]"]:
    """Show what nodes are doing as one line, and to Prometheus with a port; the yielded function takes their counters.

    `targets`: those whose requests have to be done; None for all.
    """
    from specfleet.experiments.watching.line import living_line, tokens_of
    from specfleet.fleet.scenario.resolve import resolve

    fleet = resolve(scenario)
    with ExitStack() as stack:
        takers = []
        if metrics_port is not None:
            from specfleet.experiments.watching.page import metrics_page

            takers.append(stack.enter_context(metrics_page(fleet, metrics_port, metrics_host)))
        takers.append(stack.enter_context(living_line(title, tokens_of(fleet, targets))))

        def take(counters: "Counters") -> None:
            for taker in takers:
                taker(counters)

        yield take
