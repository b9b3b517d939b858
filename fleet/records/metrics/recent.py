"""Events and metrics of a fleet's last minute."""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from fleet.records.columns import Table
from fleet.records.metrics.devices import busy_s
from fleet.records.metrics.window import Window

SPAN_S = 60.0
MAX_EVENTS = 5000  # events kept of each kind

Events = deque[tuple[float, ...]]


class Recent:
    """Rings of the last events of a fleet.

    - `rounds`: steps of targets: time_s, target, and the tokens that were committed, drafted and accepted.
    - `learned`: the same, as drafters learn it from the targets' next requests.
    - `steps`: of drafters: their ends and starts, and their time on the device; NaN for other steps than drafts.
    - `waits`: of draft requests: time_s, target, wait_s.
    """

    def __init__(self) -> None:
        self.rounds, self.learned, self.steps, self.waits = (Events(maxlen=MAX_EVENTS) for _ in range(4))

    def metrics(
        self, time_s: float, drafters: int, running_since_s: Sequence[float] = (), targets: Iterable[int] = ()
    ) -> list[dict[str, float]]:
        """Return metrics of the last minute by the names of the glossary, those of all targets first.

        - `time_s`: now. `drafters`: their number. `running_since_s`: starts of their running steps.
        - `targets`: the targets with their own throughput, acceptance_rate, wait_p50_s and wait_p90_s.

        Unknown values are NaN.
        """
        rounds_or_learned = self.rounds or self.learned
        begin_s = max(time_s - SPAN_S, 0.0)
        for events in (rounds_or_learned, self.steps, self.waits):
            if len(events) == MAX_EVENTS:  # the ring does not reach back further
                begin_s = max(begin_s, events[0][0])
        window = Window(np.array([begin_s, max(time_s, begin_s + 1e-9)]))
        rounds = _table(rounds_or_learned, "time_s", "target", "committed", "drafted", "accepted")
        waits = _table(self.waits, "time_s", "target", "wait_s")
        running = ((time_s, min(since_s, time_s), np.nan) for since_s in running_since_s)
        steps = _table([*self.steps, *running], "ended_s", "begun_s", "service_s")
        of_all = _metrics(window, rounds, waits)
        of_all["load"] = window.rate(busy_s(window, steps) / max(drafters, 1), "share").value if drafters else np.nan
        of_all["service_s"] = window.mean(steps.ended_s, steps.service_s, "s").value
        return [of_all, *(_metrics(window, *(_of(table, target) for table in (rounds, waits))) for target in targets)]


def _metrics(window: Window, rounds: Table, waits: Table) -> dict[str, float]:
    committed, drafted, accepted = (
        window.sums(rounds.time_s, values) for values in (rounds.committed, rounds.drafted, rounds.accepted)
    )
    p50, p90 = window.quantiles(waits.time_s, waits.wait_s, (0.5, 0.9), "s")
    return {
        "throughput": window.rate(committed, "tokens/s").value,
        "acceptance_rate": window.ratio(accepted, drafted, "share").value,
        "wait_p50_s": p50.value,
        "wait_p90_s": p90.value,
    }


def _of(table: Table, target: int) -> Table:
    return table.where(table.target == target)


def _table(events: Iterable[tuple[float, ...]], *names: str) -> Table:
    columns = np.array(list(events), dtype=float).reshape(-1, len(names)).T
    return Table.of(**dict(zip(names, columns, strict=True)))
