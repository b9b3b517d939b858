"""The glossary has every metric of runs, with its unit, and no other."""

from typing import Any

import msgspec

from specfleet.fleet.records.metrics.glossary import METRICS
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.power import DeviceCurve
from specfleet.fleet.records.run import Run
from specfleet.sim.run import simulate
from tests.helpers.stars import star

POWER = {"power": {"idle_w": 1.0, "draft_w": 2.0, "verify_w": 3.0}}
SHORT = {"requests": 12, "new_tokens": 12}
RUNS: dict[str, dict[str, Any]] = {
    "a star with all that can be asked of one": {
        "profile": POWER | {"decode": {"base_s": 5.0}},
        "drafters": {"admit": {"policy": "at-most", "sessions": 2}, "prefix_cache": True},
        "slo": {"tpot_s": 9.0},
        "cost": {"target_per_hour": 2.0, "drafter_per_hour": 0.5, "unit": "EUR"},
    },
    "drafting ahead": {"drafters": {"overlap": "ahead"}, "workload": SHORT},
    "aligned rows": {
        "drafters": {"place": "target"},
        "verifiers": {"count": 1, "max_num_seqs": 3, "aligned": {"policy": "realign"}},
        "workload": SHORT | {"streams": 12},
    },
    "granted lengths": {
        "drafters": {"count": 3},
        "verifiers": {"count": 1, "late": "wait", "allocate": {"policy": "goodspeed", "budget": 6}},
        "workload": SHORT,
    },
    "no drafter": {"drafters": {"count": 0}, "profile": {"decode": {"base_s": 1.0}}, "workload": SHORT},
    "a drafter that dies": {
        "profile": {"decode": {"base_s": 4.0}},
        "drafters": {"lease_s": 9.0},
        "verifiers": {"patience_s": 8.0, "rejoin_s": 3.0},
        "faults": [{"what": "kill", "node": "drafter", "at_s": 300.0, "for_s": 60.0}],
    },
    "a prefix cache": {"verifiers": {"prefix_cache": True}, "workload": SHORT},
    "prefill apart": {"verifiers": {"prefill": {}}, "workload": SHORT},
    "open arrivals": {"workload": SHORT | {"arrivals": {"process": "poisson", "per_s": 0.1}}},
}


def measured(run: Run) -> Run:
    """The run as if its devices were measured."""
    curve = DeviceCurve("a", (0.0, 1e9), (0.0, 1e9), (9.0, 9.0), (0.5, 0.5), ("drafter", "verifier.1"))
    return msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, devices=(curve,)))


def test_metrics_and_glossary_entries_match() -> None:
    units = {one.name: one.unit for one in METRICS}
    measured_names = set()
    for case, changes in RUNS.items():
        metrics = measure(measured(simulate(star(**changes))))
        measured_names |= set(metrics)
        for name, metric in metrics.items():
            unit, _, parameter = metric.unit.partition(", ")
            assert unit == units.get(name), f"{case}: {name}"
            assert not parameter or name in ("utility", "bottleneck", "cost_per_million_tokens")
    assert measured_names == set(units)
    assert len(units) == len(METRICS), "two entries of one name"
