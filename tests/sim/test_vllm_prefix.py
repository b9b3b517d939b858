"""vLLM's own steps with its prefix cache: the station plans the same ones, from arrivals and accepted drafts alone."""

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.resolved import LocalDrafts, ResolvedVerifiers
from specfleet.fleet.stations.messages import Join, StepDone
from specfleet.fleet.stations.station import Start
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Step

DATA = Path(os.environ.get("SPECFLEET_DATA", "no data")) / "vllm-prefix"
BLOCKS = {"none": 399, "none_kv": 89, "dm3": 399}
K = 3
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs recorded steps in SPECFLEET_DATA")


def rows_of(name: str, cell: str) -> list[dict[str, str]]:
    with gzip.open(DATA / f"{name}.csv.gz", "rt") as file:
        return [row for row in csv.DictReader(file) if row["cell"] == cell]


def join_of(tag: int, row: dict[str, str], talks: list[dict[str, Any]]) -> Join:
    talk = talks[int(row["conversation"])]
    identity = (talk["group"], talk["prefix"], 100 + int(row["conversation"]), 1000)
    return Join(tag, tag, int(row["prompt"]), int(row["tokens"]), identity=identity)


def ended(target: VerifierStation, step: Step, emitted: dict[int, list[int]]) -> None:
    """End a step, and the draft after it; verifications accept what they did."""
    outcomes = [
        Outcome(emitted[member.tag].pop(0) - 1 if step.kind_of(member) == "verify" else 0) for member in step.members
    ]
    target.handle(StepDone(step.number, tuple(outcomes), 1.0), 0.0)
    while target.program:
        plan = target.plan(0.0)
        assert isinstance(plan, Start)
        target.handle(StepDone(plan.step.number, tuple(Outcome() for _ in plan.step.members), 1.0), 0.0)


@pytest.mark.parametrize(
    ("setting", "cell"),
    [
        ("none", "cap8"), ("none", "closed4"), ("none_kv", "cap8"), ("none_kv", "open0.7"), ("none", "open0.7"),
        ("dm3", "cap8"), ("dm3", "open0.7"),
    ],
)  # fmt: skip
def test_the_station_plans_vllms_steps(setting: str, cell: str) -> None:
    speculates = setting == "dm3"
    batching = ContinuousBatching(16, 2048, BLOCKS[setting], 32, K if speculates else 0, int(speculates))
    drafts = LocalDrafts(K) if speculates else None
    target = VerifierStation(
        "verifier.1", ResolvedVerifiers(batching=batching, prefix_cache=True, speculates=speculates, drafts=drafts)
    )
    talks = json.loads((DATA / "conversations.json").read_text())
    waiting = sorted(rows_of(f"{setting}_requests", cell), key=lambda row: int(row["added"]))
    emitted = {tag: [*map(int, row["emitted"] or "")] for tag, row in enumerate(waiting)}
    came, different, steps = 0, [], rows_of(f"{setting}_steps", cell)
    for logged in steps:
        while came < len(waiting) and int(waiting[came]["added"]) <= int(logged["t"]):
            target.handle(join_of(came, waiting[came], talks), 0.0)
            came += 1
        plan = target.plan(0.0)
        assert isinstance(plan, Start)
        assert target.rows.cache is not None
        planned = {
            "rows": len(target.rows.parts),
            "fed": sum(part.share.tokens for part in target.rows.parts.values()),
            "running": len(target.rows.running),
            "waiting": len(target.rows.waiting),
            "kv": BLOCKS[setting] - target.rows.cache.free,
        }
        if planned != {name: int(logged[name]) for name in planned}:
            different.append((planned, logged))
        ended(target, plan.step, emitted)
    assert len(steps) > 300
    assert not different, different[:3]
    assert not target.sessions
