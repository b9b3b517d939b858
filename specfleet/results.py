"""What functions of the API return: results that show themselves in a notebook and become pandas frames.

pandas and matplotlib are imported for a frame or a figure: a simulation and its metrics need neither, and they take
longer to import than a small one takes to run.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from specfleet.experiments.console.printing import case_text
from specfleet.experiments.notes import notes_of
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.findings import findings
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import Findings
from specfleet.fleet.records.metrics.glossary import PERCENTILES
from specfleet.fleet.records.metrics.measure import assess, measure_targets
from specfleet.fleet.records.metrics.overload import Overload
from specfleet.fleet.records.metrics.tables import rounds_of, verifications_of
from specfleet.fleet.records.metrics.window import Metric, percentile_values
from specfleet.fleet.records.run import Run, write_run
from specfleet.fleet.scenario.changes import flat
from specfleet.fleet.scenario.links import holds_links
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.show import describe_fleet
from specfleet.fleet.shown import Shown, number, with_ends
from specfleet.sim import analytic
from specfleet.sim.alone import alone_tokens_per_s, has_targets_alone, plain_tpot_s

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, eq=False)
class Result(Shown):
    """A finished run, simulated or measured; `run` holds its header and its event table.

    Of a long simulation without records, `observed` has what metrics need.

    >>> import specfleet
    >>> result = specfleet.simulate("star", workload={"requests": 20})
    >>> result.metrics["throughput"].unit
    'tokens/s'
    """

    run: Run
    observed: Findings | None = None

    @property
    def scenario(self) -> Scenario:
        """The scenario as it was run."""
        return self.run.header.scenario

    @property
    def metrics(self) -> dict[str, Metric]:
        """All metrics by name, each with its value, 95 % interval (`low`, `high`; NaN where there is none) and unit.

        A run that was offered more than it could carry has no steady state, and none of its metrics an interval.
        """
        return self._assessed[0]

    @property
    def overload(self) -> Overload | None:
        """The verdict where requests came by themselves faster than they could be served; None else."""
        return self._assessed[1]

    @cached_property
    def _assessed(self) -> tuple[dict[str, Metric], Overload | None]:
        metrics, overload = assess(self.observed or self.run)
        has_load = "tpot_s" in metrics and self.scenario.drafters.count > 0 and overload is None
        if has_load and "speedup" not in metrics and self._has_baseline:
            with suppress(InputError):  # a file of the workload may be gone
                factor = plain_tpot_s(self.scenario) / metrics["tpot_s"].value
                metrics |= {} if math.isnan(factor) else {"speedup": Metric(factor, unit="factor")}
        return metrics, overload

    @property
    def _has_baseline(self) -> bool:
        """Whether other simulations are comparable: measured steps have none."""
        return self.run.header.world == "sim" and not self.run.header.played

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the scenario says that its author may not mean, a line each."""
        return notes_of(self.scenario, self.run.header.world)

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints of the run, where NaN and infinity are null."""
        content: dict[str, Any] = with_ends({
            "scenario": self.scenario.name, "world": self.run.header.world, "seed": self.scenario.seed,
            "metrics": self.metrics, "overload": self.overload, "notes": self.notes,
        })  # fmt: skip
        return content

    def title(self) -> str:
        """Say which run this is."""
        header = self.run.header
        run = self.run
        rows = f"rows in {run.file}" if run.file else "no records"
        digest = rows if run.kept is None else f"digest {run.digest()}"
        world, seed = header.engine or header.world, header.scenario.seed
        title = f"{header.scenario.name}, world: {world}, seed {seed}, {digest}"
        played = f"{', '.join(header.played)} of {header.played_of}" if header.played else ""
        replayed = f"replayed: {' and '.join(header.replayed)}" if header.replayed else ""
        delayed = "links held back as stated" if header.world == "engine" and holds_links(header.fleet) else ""
        return ", ".join(filter(None, (title, played, replayed, delayed, self.run.warning)))

    def line(self) -> str:
        """Say which run this is, and its throughput, or that it was offered more than it could carry."""
        if self.overload is not None:
            return f"{self.title()}: {self.overload.line()}"
        return f"{self.title()}: {number(self.metrics['throughput'].value)} tokens/s"

    def frame(self) -> "pd.DataFrame":
        """One row a metric: metric, value, low, high (of the 95 % interval), unit, times_longer, drifting, percentiles.

        `times_longer`: how many times as long the run would have to be for an interval; 1 where it is long enough.
        `drifting`: it has none because it was still changing. Percentiles are those of times; NaN elsewhere.
        """
        import pandas as pd

        rows = [
            {"metric": name}
            | msgspec.structs.asdict(metric)
            | dict(zip(("low", "high", *PERCENTILES), (*metric.ends, *percentile_values(metric)), strict=True))
            for name, metric in self.metrics.items()
        ]
        return pd.DataFrame(rows).astype(dict.fromkeys(PERCENTILES, float))

    def rows(self) -> "pd.DataFrame":
        """One row an event of a station, the run's record."""
        return self.run.frame()

    def rounds(self) -> "pd.DataFrame":
        """One row a round with its times in seconds, see `rounds_of`; ahead of a target, one row a verification."""
        table_of = rounds_of if self.run.header.fleet.in_turn else verifications_of
        return table_of(self.run.columns()).frame()

    def targets(self) -> "pd.DataFrame":
        """One row a target: tag, throughput in tokens/s, its requests and rounds, see `measure_targets`.

        Of a simulated closed loop without playback, `share_of_alone` is a target's throughput over what it has as the
        only target, simulated.
        """
        table = measure_targets(self.run)
        if self._has_baseline and has_targets_alone(self.run.header.fleet):
            with suppress(InputError):  # a file of the workload may be gone
                table.insert(2, "share_of_alone", table.throughput / alone_tokens_per_s(self.scenario))
        return table

    def figure(self, name: Literal["timeline"] = "timeline", out: str | Path | None = None) -> "Figure":
        """Draw the run, and write the figure to `out` if given."""
        from specfleet.experiments.draw import draw

        return draw(name, self.run, out).figure

    def save(self, path: str | Path) -> None:
        """Write header and records as one Parquet file, which `specfleet.read_run` reads."""
        write_run(self.run, Path(path))


class Prediction(Shown, analytic.StarPrediction, frozen=True):
    """What the equations say of a star: the fields of `sim.analytic.StarPrediction`, and `notes` on the scenario."""

    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """Say where the star saturates, and what is left out."""
        where = f"N = {self.N}: {self.regime}, N_full = {self.N_full}"
        return f"{where}, {number(self.throughput.with_bonus)} tokens/s, prefill left out"

    def frame(self) -> "pd.DataFrame":
        """One row a quantity: quantity (dotted name), value. Of unlike targets the name has the first one's number."""
        import pandas as pd

        content = msgspec.to_builtins(self)
        content["targets"] = {str(row.pop("first")): row for row in content["targets"]}
        rows = [row for row in flat(content) if row[0] != "notes"]
        return pd.DataFrame(rows, columns=["quantity", "value"])


class ResolvedFleet(Shown, Fleet, frozen=True):
    """What a scenario and its profile come to; the fields are those of `fleet.scenario.resolved.Fleet`."""

    def line(self) -> str:
        """Say how many stations there are, and where their times come from."""
        profile = f"profile {self.profile} ({self.profile_digest})" if self.profile_digest else "no profile"
        return f"{self.name}: drafters: {self.drafters.count}, targets: {self.verifiers.count}, {profile}"

    def frame(self) -> "pd.DataFrame":
        """One row a fact: where, what, value, as texts with their units."""
        import pandas as pd

        return pd.DataFrame(describe_fleet(self), columns=["where", "what", "value"])


@dataclass(frozen=True, repr=False, eq=False)
class Sweep(Shown):
    """A sweep's cells, in order; `errors` says which ones failed and why, `notes` what their scenarios may not mean."""

    cells: list[CellResult]
    notes: tuple[str, ...] = ()

    @property
    def errors(self) -> list[str]:
        """One line for each failed cell."""
        return [f"{case_text(cell.cell)}: {cell.error}" for cell in self.cells if cell.error]

    def line(self) -> str:
        """Say how many cells there are."""
        said = f"sweep of {len(self.cells)} cell{'s' * (len(self.cells) != 1)}"
        return said + f", {len(self.errors)} of them failed" * bool(self.errors)

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints: the cells, each with its metrics and their units, findings and notes."""
        content: dict[str, Any] = with_ends(
            {"cells": self.cells, "findings": self.findings(), "errors": self.errors, "notes": self.notes}
        )
        return content

    def findings(self, quantity: str = "throughput") -> list[str]:
        """Say which cell is best, which ones chance does not tell from it, and where the knee is, a line each.

        Of times, power, energy and costs the least is best, of other metrics the largest.
        """
        return findings(self.cells, quantity)

    def frame(self) -> "pd.DataFrame":
        """One row a cell: the varied keys, `world`, and three columns a metric: `throughput`, `throughput_low`, ...

        What the equations say, where they apply, stands in `analytic_throughput`, ... ; `basis` says what step times
        rest on (measured, stated, estimated or assumed), `overload` where a cell
        was offered more than it could carry, `error` why it failed; both are empty elsewhere.
        """
        from specfleet.experiments.sweep.sweep import wide_table

        return wide_table(self.cells)

    def figure(self, name: Literal["sweep"] = "sweep", out: str | Path | None = None, metric: str = "") -> "Figure":
        """Draw a metric, throughput by default, along the first varied key; write the figure to `out` if given."""
        from specfleet.experiments.draw import draw
        from specfleet.experiments.sweep.sweep import table

        return draw(name, table(self.cells), out, metric).figure
