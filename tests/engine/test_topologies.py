"""Every topology over real processes: texts are those of plain decoding, logs replay; unsupported keys are named."""

from pathlib import Path
from typing import Any

import pytest

from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.launch.serve import EngineRun, serve
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.resolve import resolve
from tests.helpers.marks import slow
from tests.helpers.pairs import pair_scenario
from tests.helpers.plain import plain_outputs
from tests.helpers.stars import star

AHEAD = {"policy": "ahead", "least": 2, "busy": True}
DSDE: dict[str, Any] = {"allocate": {"policy": "dsde"}}
PREDICTED = {"policy": "predicted", "service_s": [0.01, 0.02], "prefill_s": [0.0]}
GOODSPEED = {"late": "wait", "allocate": {"policy": "goodspeed", "budget": 6}}


def run_pair(folder: Path, drafters: dict[str, Any], verifiers: dict[str, Any], **workload: Any) -> EngineRun:
    """Run a fleet of the kin and the target; check texts, where they are greedy, and logs."""
    drafters = {"model": str(folder / "kin"), "depth": 5 if "overlap" in drafters else 4} | drafters
    verifiers = {"count": 1} | verifiers
    scenario = pair_scenario(folder, drafters=drafters, verifiers=verifiers, workload=workload)
    served = serve(scenario)
    if not scenario.workload.temperature:
        assert served.outputs == plain_outputs(scenario)
    assert set(served.outputs) == set(range(scenario.workload.requests))
    assert replay(served.run) == []
    assert not (served.run.frame().event == "refusal").any()
    return served


@pytest.mark.parametrize(
    ("drafters", "verifiers", "workload"),
    [
        ({"overlap": AHEAD}, {}, {}),
        slow({"overlap": AHEAD}, {"count": 2}, {}),
        slow({"overlap": "ahead"}, {}, {"temperature": 0.8}),
        slow({"count": 2}, GOODSPEED, {}),
        ({"count": 2}, GOODSPEED, {"temperature": 1.0}),
        ({}, DSDE, {"temperature": 1.0}),
        slow({"count": 2}, {"allocate": {"policy": "random-share", "budget": 4}}, {"streams": 3}),
        ({"count": 2}, {"count": 3}, {}),
        ({"count": 2, "route": "round-robin"}, {"count": 2}, {}),
        slow({"count": 2, "route": PREDICTED}, {"count": 3}, {}),
        slow({"count": 2, "route": "round-robin"}, {}, {"temperature": 1.0}),
        ({"count": 2, "route": "round-robin", "kind": "block"}, {"count": 2}, {}),
        slow({"count": 2, "kind": "block"}, GOODSPEED, {"temperature": 1.0}),
        slow({}, {"count": 2}, {"streams": 5, "new_tokens": {"low": 3, "high": 9}}),
        slow({}, {"count": 2}, {"arrivals": {"process": "poisson", "per_s": 20.0}}),
    ],
)
def test_every_topology_decodes_as_plain_decoding(
    tiny: Path, drafters: dict[str, Any], verifiers: dict[str, Any], workload: dict[str, Any]
) -> None:
    served = run_pair(tiny, drafters, verifiers, **workload)
    rows = served.run.frame()
    verified = rows.query("event == 'done' and kind == 'verify'")
    assert verified.accepted.sum() > 0
    if verifiers.get("allocate", {}).get("policy") == "goodspeed":
        drafted = verified.query("tokens > 0")
        assert ((drafted.ratio > 0) & (drafted.ratio < 1)).any()
    if verifiers == DSDE:
        drafted = verified.query("tokens > 0")
        assert (drafted.klds.map(len) == drafted.tokens).all()
        assert (drafted.klds.map(min) > 0).all()
        assert verified.tokens.nunique() > 2
    if drafters.get("route") == "round-robin":
        assert rows.query("event == 'draft-request' and flag and epoch > 1").station.nunique() == 2


def test_a_head_drafts_after_a_move_as_one_that_kept_its_sessions() -> None:
    workload = {"requests": 3, "prompt_tokens": 32, "new_tokens": 40}
    stayed, moved = (
        serve(star(drafters={"kind": "eagle", "depth": 4} | drafters, verifiers={"count": 1}, workload=workload))
        for drafters in ({}, {"count": 2, "route": "round-robin"})
    )
    assert moved.outputs == stayed.outputs
    assert replay(moved.run) == []
    rows = [run.run.frame().query("event == 'done' and kind == 'verify'") for run in (stayed, moved)]
    accepted = [{(row.request, row.base): row.accepted for row in of_run.itertuples()} for of_run in rows]
    assert accepted[0] == accepted[1]
    assert sum(accepted[0].values()) > 20
    opened = moved.run.frame().query("event == 'draft-request' and flag and epoch > 1")
    assert opened.station.nunique() == 2


@pytest.mark.parametrize(
    ("key", "tables"),
    [
        ("drafters.overlap", {"drafters": {"overlap": "ahead", "kind": "lookup"}}),
        ("drafters.overlap", {"drafters": {"overlap": "ahead", "count": 2, "route": "round-robin"}}),
        ("drafters.route", {"drafters": {"count": 2, "route": "predicted"}, "profile": ""}),
        ("drafters.overlap", {"drafters": {"overlap": "ahead"}, "verifiers": {"kind": "replayed"}}),
        ("drafters.place", {"drafters": {"place": "target"}, "verifiers": {"kind": "replayed"}}),
        ("verifiers.allocate = 'dsde'", {"verifiers": DSDE, "acceptance": None}),
        (
            "verifiers.allocate = 'dsde'",
            {"verifiers": DSDE, "acceptance": None, "workload": {"temperature": 1.0, "top_k": 5}},
        ),
        *(
            ("verifiers.allocate = 'dsde'", {"drafters": {"place": "target"} | drafts, "verifiers": DSDE})
            for drafts in (
                {"shape": {"kind": "tree", "branching": [2, 1]}},
                {"shape": {"kind": "dynamic"}},
                {"kind": "lookup"},
            )
        ),
        (
            "verifiers.allocate = 'goodspeed'",
            {"verifiers": {"kind": "replayed", "allocate": {"policy": "goodspeed", "budget": 8}}},
        ),
        ("workload.new_tokens", {"verifiers": {"kind": "replayed"}, "workload": {"new_tokens": {"low": 3, "high": 9}}}),
    ],
)
def test_scenarios_that_cannot_run_are_refused_by_key(key: str, tables: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=key.replace(".", r"\.")) as refused:
        check_can_run(resolve(star(**tables)))
    assert "allowed" in str(refused.value)
