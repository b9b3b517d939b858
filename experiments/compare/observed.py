"""A scenario that was made of a server's load, simulated and held against what the server's records say."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
import pandas as pd

from calibrate.readers.importing import Imported
from calibrate.readers.load import LEVELS, Load, Spread
from fleet.records.metrics.glossary import percentile_name
from fleet.records.metrics.measure import measure
from fleet.records.metrics.window import with_percentiles
from fleet.scenario.workload import mean_lengths
from fleet.shown import Shown
from sim.run import observe


class HeldRow(msgspec.Struct, frozen=True):
    """A quantity as it was read and as it was simulated; `kind`: whether the scenario took it as input."""

    quantity: str
    observed: float
    simulated: float
    kind: Literal["input", "predicted"]

    @property
    def error(self) -> float | None:
        """The simulated value over the observed one, less 1; None where nothing was observed."""
        return self.simulated / self.observed - 1 if self.observed else None


class Held(Shown, msgspec.Struct, frozen=True):
    """The rows, and where the step times of the simulation come from."""

    times: str
    rows: tuple[HeldRow, ...]

    def line(self) -> str:
        """Say the largest error of what was predicted."""
        errors = [(abs(row.error), row) for row in self.rows if row.kind == "predicted" and row.error is not None]
        if not errors:
            return "nothing was predicted"
        worst, row = max(errors, key=lambda pair: pair[0])
        mean = sum(error for error, _ in errors) / len(errors)
        return f"predicted: {mean:.1%} off on average, {worst:.1%} at worst ({row.quantity})"

    def frame(self) -> pd.DataFrame:
        """Return the rows as a frame: quantity, observed, simulated, error, kind."""
        rows = [(row.quantity, row.observed, row.simulated, row.error, row.kind) for row in self.rows]
        return pd.DataFrame(rows, columns=["quantity", "observed", "simulated", "error", "kind"])


def hold(imported: Imported) -> Held | None:
    """Simulate an imported scenario and hold it against the load that it was made of.

    Returns None without a load or without step times. Errors are those of `simulate`.
    """
    load = imported.load
    if load is None or not imported.times:
        return None
    found = observe(imported.scenario)
    metrics = {name: metric.value for name, metric in with_percentiles(measure(found)).items()}
    prompt, answer = mean_lengths(imported.scenario.workload)
    metrics |= {"prompt": prompt, "answer": answer}
    return Held(imported.times, tuple(_rows(load, metrics, imported.inputs)))


def _rows(load: Load, metrics: Mapping[str, float], inputs: tuple[str, ...]) -> Iterator[HeldRow]:
    length = metrics.get("mean_acceptance_length", 1.0)
    means: dict[str, tuple[float | None, float]] = {
        "prompt, tokens": (_mean(load.prompt_tokens), metrics["prompt"]),
        "answer, tokens": (_mean(load.new_tokens), metrics["answer"]),
        "tokens a round": (load.tokens_per_round if load.tokens_per_round > 1 else None, length),
        "time of a round, ms": (load.round_s and 1e3 * load.round_s, 1e3 * metrics["tpot_s"] * length),
        "requests/s": (load.requests_per_s, metrics["carried_requests_per_s"]),
        "in flight": (load.in_flight, metrics["carried_requests_per_s"] * metrics["latency_s"]),
        "tokens/s": (load.tokens_per_s, metrics["throughput"]),
    }
    for name, (observed, simulated) in means.items():
        if observed is not None:
            yield HeldRow(name, observed, simulated, "input" if name in inputs else "predicted")
    for name, metric, times_s in (("TTFT, ms", "ttft_s", load.ttft_s), ("TPOT, ms", "tpot_s", load.tpot_s)):
        if times_s is None:
            continue
        yield HeldRow(
            f"{name}, mean", 1e3 * times_s.mean, 1e3 * metrics[metric], "input" if name in inputs else "predicted"
        )
        for level in LEVELS:
            simulated_s = metrics.get(percentile_name(metric, level.lower()))
            if level in times_s.quantiles and simulated_s is not None:
                yield HeldRow(f"{name}, {level}", 1e3 * times_s.quantiles[level], 1e3 * simulated_s, "predicted")


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean
