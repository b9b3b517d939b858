"""Simulated rows and metrics of every shipped scenario equal their digests.

Digests use the column and event names at the time of their creation, so that columns can be renamed. Floats have nine
digits. `python -m tests.sim.test_digests` writes new digests after an intended change.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fleet.data.shipped import shipped_scenarios
from fleet.records.metrics.measure import measure
from fleet.records.metrics.window import with_percentiles
from fleet.records.run import Run
from fleet.scenario.reading import change_scenario, read_scenario
from fleet.scenario.scenario import Scenario
from sim.run import simulate

FILE = Path(__file__).with_name("digests.json")
DIGITS = 9
COLUMNS = {  # name in the digests: name today
    name: name
    for name in (
        "time_s", "station", "seq", "event", "step", "kind", "tag", "request", "epoch", "base", "tokens", "goal",
        "accepted", "flag", "priority", "duration_s", "idle_gap_s", "payload_bytes", "note", "matches", "ratio",
        "kld", "kld_peak",
    )
}  # fmt: skip
WORDS: dict[str, str] = {}  # word in the digests: word today, of events, kinds and notes
METRICS = {  # name in the digests: name today; percentiles are flattened
    "ttft_mean_s": "ttft_s", "tpot_mean_s": "tpot_s", "latency_mean_s": "latency_s",
}  # fmt: skip
GONE = {  # metrics in the digests that were removed
    "in_time", "draft_cache_peak_bytes", "fairness", "rounds",
    "energy_kwh_per_million_tokens", "alone_token_share", "blocked_share", "rows_per_step", "utility_gap",
    "request_bytes", "draft_bytes", "alone_tokens_per_s",
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {  # of the star, beyond the shipped scenarios
    "star, time-sliced": {"devices.host": {}, "drafters.device": "host", "verifiers.device": "host"},
    "star, in one process": {
        "devices.host": {"sharing": "one-process"}, "drafters.device": "host", "verifiers.device": "host"
    },
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
    shipped = {name: read_scenario(path) for name, path in shipped_scenarios().items()}
    variants = {name: change_scenario(shipped["star"], changes) for name, changes in VARIANTS.items()}
    return shipped | variants


def digest(run: Run) -> str:
    """Digest of the rows over COLUMNS."""
    sha = hashlib.sha256()
    old_word = {new: old for old, new in WORDS.items()}
    for old, new in COLUMNS.items():
        column = run.table.column(new)
        if pa.types.is_string(column.type):
            text = "\n".join(old_word.get(word, word) for word in column.to_pylist())
        elif pa.types.is_floating(column.type):
            text = " ".join(f"{value:.{DIGITS - 1}e}" for value in column.to_pylist())
        else:
            text = " ".join(map(str, np.asarray(column.to_numpy()).astype(int).tolist()))
        sha.update(f"{old}\n{text}\n".encode())
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
    moved = {
        old: (value, now["metrics"].get(METRICS.get(old, old)))
        for old, value in before["metrics"].items()
        if old not in GONE
        and not math.isclose(value, now["metrics"].get(METRICS.get(old, old), math.inf), rel_tol=1e-8)
        and not (math.isnan(value) and math.isnan(now["metrics"].get(METRICS.get(old, old), math.inf)))
    }
    assert not moved


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: fingerprint(each) for name, each in scenarios().items()}, indent=1) + "\n")
