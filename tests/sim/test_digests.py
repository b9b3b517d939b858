"""Simulated runs of every shipped scenario stay what they were, row for row and metric for metric.

The digests cover the columns and event names that are here to stay, under the names that they had when the digests were
made, so that a column can be renamed or removed without a new digest. Floats count to nine digits. Write them anew with
`python -m tests.sim.test_digests` after a change that is meant to move them.
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
COLUMNS = {  # of a row: the name at the time of the digests, and today's
    name: name
    for name in (
        "time_s", "station", "seq", "event", "step", "kind", "tag", "request", "epoch", "base", "tokens", "goal",
        "accepted", "flag", "priority", "duration_s", "idle_gap_s", "payload_bytes", "note", "matches", "ratio",
        "kld", "kld_peak",
    )
}  # fmt: skip
WORDS: dict[str, str] = {}  # today's event names, kinds and notes, by the word at the time of the digests
METRICS = {  # today's names of renamed metrics, by the name at the time of the digests; percentiles are flattened
    "ttft_mean_s": "ttft_s", "tpot_mean_s": "tpot_s", "latency_mean_s": "latency_s",
}  # fmt: skip
GONE = {  # metrics at the time of the digests that runs no longer have
    "accepted_throughput", "iteration_idle_s", "iteration_s", "in_time", "draft_cache_peak_bytes",
    "energy_kwh_per_million_tokens", "alone_token_share", "blocked_share", "rows_per_step", "utility_gap",
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {  # of the star: what no shipped scenario runs
    "star, time-sliced": {"devices.host": {}, "drafters.device": "host", "verifiers.device": "host"},
    "star, in one process": {
        "devices.host": {"sharing": "one-process"}, "drafters.device": "host", "verifiers.device": "host"
    },
    "star, concurrent": {
        "devices.host": {"sharing": "contended"}, "drafters.device": "host", "verifiers.device": "host"
    },
    "star, plain decoding": {"drafters.count": 0},
    "star, arrivals": {"workload.arrivals": {"process": "poisson", "per_s": 0.2}, "workload.requests": 40},
    "star, adaptive depth": {"drafters.allocate": "adaptive"},
    "star, 4090": {"profile": "rtx-4090", "verifiers.count": 5},
    "star, jetson": {"profile": "jetson-orin", "verifiers.count": 3},
    "star, a100": {"profile": "a100", "verifiers.count": 3},
}  # fmt: skip


def scenarios() -> dict[str, Scenario]:
    """Every shipped scenario, and the variants of the star, by name."""
    shipped = {name: read_scenario(path) for name, path in shipped_scenarios().items()}
    variants = {name: change_scenario(shipped["star"], changes) for name, changes in VARIANTS.items()}
    return shipped | variants


def digest(run: Run) -> str:
    """Fingerprint of the rows over the columns above."""
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


def found(scenario: Scenario) -> dict[str, Any]:
    """What is held: how many rows, their digest, and every metric and percentile."""
    run = simulate(scenario)
    measured = with_percentiles(measure(run))
    metrics = {name: float(f"{metric.value:.{DIGITS - 1}e}") for name, metric in measured.items()}
    return {"rows": run.table.num_rows, "digest": digest(run), "metrics": metrics}


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text()))


@pytest.mark.parametrize("name", scenarios())
def test_simulated_runs_equal_their_digests(name: str, kept: dict[str, Any]) -> None:
    now, before = found(scenarios()[name]), kept[name]
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
    FILE.write_text(json.dumps({name: found(each) for name, each in scenarios().items()}, indent=1) + "\n")
