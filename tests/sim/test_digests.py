"""Simulated rows and metrics of every shipped scenario equal their digests.

Floats have nine digits. `python -m tests.sim.test_digests` writes new digests after an intended change.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import with_percentiles
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario, read_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

FILE = Path(__file__).with_name("digests.json")
DIGITS = 9
COLUMNS = (
    "time_s", "station", "seq", "event", "step", "kind", "tag", "request", "epoch", "base", "tokens", "goal",
    "accepted", "flag", "priority", "duration_s", "idle_gap_s", "payload_bytes", "note", "matches", "ratio", "klds",
)  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {  # of the star, beyond the shipped scenarios
    "star, time-sliced": {"devices.host": {}, "drafters.device": "host", "verifiers.device": "host"},
    "star, concurrent": {
        "devices.host": {"sharing": "contended"}, "drafters.device": "host", "verifiers.device": "host"
    },
    "star, plain decoding": {"drafters.count": 0},
    "star, arrivals": {"workload.arrivals": {"process": "poisson", "per_s": 0.2}, "workload.requests": 40},
    "star, 4090": {"profile": "rtx-4090", "verifiers.count": 5},
    "star, jetson": {"profile": "jetson-orin", "verifiers.count": 3},
    "star, a100": {"profile": "a100", "verifiers.count": 3},
}  # fmt: skip


def scenarios() -> dict[str, Scenario]:
    """Shipped scenarios and variants of the star, by name."""
    shipped = {name: read_scenario(path) for name, path in shipped_files("scenarios").items()}
    variants = {name: change_scenario(shipped["star"], changes) for name, changes in VARIANTS.items()}
    return shipped | variants


def digest(run: Run) -> str:
    """Digest of the rows over COLUMNS."""
    sha = hashlib.sha256()
    for name in COLUMNS:
        column = run.table.column(name)
        if pa.types.is_string(column.type):
            text = "\n".join(column.to_pylist())
        elif pa.types.is_floating(column.type):
            text = " ".join(f"{value:.{DIGITS - 1}e}" for value in column.to_pylist())
        elif pa.types.is_list(column.type):
            text = " ".join(f"{value:.{DIGITS - 1}e}" for values in column.to_pylist() for value in values)
        else:
            text = " ".join(map(str, np.asarray(column.to_numpy()).astype(int).tolist()))
        sha.update(f"{name}\n{text}\n".encode())
    return sha.hexdigest()[:16]


def fingerprint(scenario: Scenario) -> dict[str, Any]:
    """Number of rows, their digest, and all metrics and percentiles."""
    run = simulate(scenario)
    measured = with_percentiles(measure(run))
    metrics = {name: float(f"{metric.value:.{DIGITS - 1}e}") for name, metric in measured.items()}
    return {"rows": run.table.num_rows, "digest": digest(run), "metrics": metrics}


@pytest.fixture(scope="module")
def digests() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text()))


@pytest.mark.parametrize("name", scenarios())
def test_simulated_runs_equal_their_digests(name: str, digests: dict[str, Any]) -> None:
    now, before = fingerprint(scenarios()[name]), digests[name]
    assert (now["rows"], now["digest"]) == (before["rows"], before["digest"])
    assert now["metrics"] == pytest.approx(before["metrics"], rel=1e-8, abs=0, nan_ok=True)


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: fingerprint(each) for name, each in scenarios().items()}, indent=1) + "\n")
