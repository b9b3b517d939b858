"""What is shown while nodes work that were started here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from fleet.errors import InputError

if TYPE_CHECKING:
    from fleet.records.metrics.counters import Counters
    from fleet.scenario.resolved import Fleet
    from fleet.scenario.scenario import Scenario


@contextmanager
def watched(
    title: str, scenario: "Scenario", targets: "Sequence[int] | None", metrics_port: int | None, metrics_host: str
) -> Iterator["Callable[[Counters], None]"]:
    """Show what nodes are doing as one line, and to Prometheus with a port; the yielded function takes their counters.

    `targets`: those whose requests have to be done; None for all.
    """
    from experiments.watching.line import living_line, tokens_of
    from fleet.scenario.resolve import resolve

    fleet = resolve(scenario)
    with ExitStack() as stack:
        takers = []
        if metrics_port is not None:
            takers.append(stack.enter_context(_page(fleet, metrics_port, metrics_host)))
        takers.append(stack.enter_context(living_line(title, tokens_of(fleet, targets))))

        def take(counters: "Counters") -> None:
            for taker in takers:
                taker(counters)

        yield take


def _page(fleet: "Fleet", port: int, host: str) -> AbstractContextManager["Callable[[Counters], None]"]:
    try:
        from experiments.watching.page import metrics_page
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise InputError(
            f"--metrics-port {port}: needs prometheus_client, which is not installed; pip install 'specfleet[metrics]'"
        ) from None
    return metrics_page(fleet, port, host)
