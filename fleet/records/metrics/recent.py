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

    - `rounds`: steps of targets: time_s, and the tokens that were committed, drafted and accepted.
    - `learned`: the same, as drafters learn it from the targets' next requests.
    - `steps`: of drafters: their ends and starts.
    """

    def __init__(self) -> None:
        self.rounds, self.learned, self.steps = (Events(maxlen=MAX_EVENTS) for _ in range(3))

    def metrics(self, time_s: float, drafters: int, running_since_s: Sequence[float] = ()) -> dict[str, float]:
        """Return throughput, acceptance_rate and load of the last minute; NaN if unknown.

        `time_s`: now. `drafters`: their number. `running_since_s`: starts of their running steps.
        """
        rounds_or_learned = self.rounds or self.learned
        begin_s = max(time_s - SPAN_S, 0.0)
        for events in (rounds_or_learned, self.steps):
            if len(events) == MAX_EVENTS:  # the ring does not reach back further
                begin_s = max(begin_s, events[0][0])
        window = Window(np.array([begin_s, max(time_s, begin_s + 1e-9)]))
        rounds = _table(rounds_or_learned, "time_s", "committed", "drafted", "accepted")
        running = ((time_s, min(since_s, time_s)) for since_s in running_since_s)
        steps = _table([*self.steps, *running], "ended_s", "begun_s")
        committed, drafted, accepted = (
            window.sums(rounds.time_s, values) for values in (rounds.committed, rounds.drafted, rounds.accepted)
        )
        return {
            "throughput": window.rate(committed, "tokens/s").value,
            "acceptance_rate": window.ratio(accepted, drafted, "share").value,
            "load": window.rate(busy_s(window, steps) / drafters, "share").value if drafters else np.nan,
        }


def _table(events: Iterable[tuple[float, ...]], *names: str) -> Table:
    columns = np.array(list(events), dtype=float).reshape(-1, len(names)).T
    return Table.of(**dict(zip(names, columns, strict=True)))
