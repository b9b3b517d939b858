"""A resolved fleet has the scenario's values for each station, and replaces the scenario."""

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import read_run, write_run
from specfleet.fleet.scenario.facts import crowds
from specfleet.fleet.scenario.reading import make_scenario, read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.show import describe_fleet
from specfleet.fleet.stations.build import stations
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.step_time import LinkTime, StepTime
from specfleet.sim.run import simulate
from tests.helpers.stars import star

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "fleet" / "data" / "scenarios").glob("*.toml"))
DOORS = {
    "engine/outside/answers.py",
    "engine/outside/engines.py",
    "engine/outside/job.py",  # where a scenario is read, changed, resolved, kept or written
    *(f"fleet/scenario/{name}.py" for name in ("changes", "conflicts", "fingerprint", "reading", "resolve")),
    *(f"fleet/scenario/{name}.py" for name in ("facts", "named_files", "provenance", "readers", "sides", "writing")),
    *("fleet/records/run.py", "sim/run.py", "sim/predict.py", "sim/alone.py"),
    *("engine/launch/by_hand.py", "engine/launch/serve.py"),
}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_resolved_shipped_scenarios_survive_serialisation(path: Path) -> None:
    fleet = resolve(read_scenario(path))
    assert msgspec.json.decode(msgspec.json.encode(fleet), type=Fleet) == fleet


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_is_shown_names_every_station(path: Path) -> None:
    fleet = resolve(read_scenario(path))
    ends = {name for where, _, _ in describe_fleet(fleet) for part in where.split(" - ") for name in part.split(" .. ")}
    built = list(stations(fleet))
    assert {name for name in ends if name in built} >= {built[0], built[-1]}
    assert all(value.strip() and "None" not in value for _, _, value in describe_fleet(fleet))
    assert "shape" in {what for _, what, _ in describe_fleet(fleet)}


def test_a_run_keeps_the_fleet_that_it_ran(tmp_path: Path) -> None:
    scenario = star()
    write_run(simulate(scenario), tmp_path / "run.parquet")
    kept = read_run(tmp_path / "run.parquet")
    assert kept.header.fleet == resolve(scenario)
    assert replay(kept) == []


times = st.builds(lambda base_s: {"base_s": base_s}, st.floats(0.1, 9))
links = st.builds(lambda latency_s: {"latency_s": latency_s}, st.floats(0.1, 9))


def machine(seconds: float) -> dict[str, Any]:
    """A profile whose times all differ, and lie beyond those of the strategies above."""
    steps = ("draft", "verify", "decode", "draft_prefill", "verify_prefill")
    return {"name": f"m{seconds}"} | {step: {"base_s": seconds + place} for place, step in enumerate(steps)}


def tiers() -> st.SearchStrategy[list[dict[str, Any]]]:
    keys = {"first": st.integers(1, 7)}
    optional = {"step": times, "link": links, "profile": st.sampled_from([machine(20), machine(30)])}
    tier = st.fixed_dictionaries(keys, optional=optional).filter(lambda tier: len(tier) > 1)
    unlike = st.lists(tier, max_size=4, unique_by=lambda tier: tier["first"])
    return unlike.map(lambda tiers: sorted(tiers, key=lambda tier: tier["first"]))


def overwritten(tiers: list[dict[str, Any]], number: int, steps: dict[str, Any]) -> dict[str, Any]:
    """The times of a station by name: tier after tier, a profile replaces them all, then a step the first one."""
    for tier in tiers:
        if tier["first"] <= number + 1:
            steps = {step: tier.get("profile", steps)[step] for step in steps}
            steps |= {next(iter(steps)): tier["step"]} if "step" in tier else {}
    return steps


@given(tiers(), tiers(), st.integers(1, 5), st.integers(1, 5), st.none() | times, st.none() | links)
def test_the_last_tier_that_names_a_station_wins(
    of_drafters: list[dict[str, Any]], of_targets: list[dict[str, Any]], M: int, N: int, verify: Any, link: Any
) -> None:
    profile = machine(10)
    tables: dict[str, Any] = {"drafters": {"count": M, "tiers": of_drafters}, "profile": profile}
    tables["verifiers"] = {"count": N, "tiers": of_targets} | ({"verify": verify} if verify else {})
    fleet = resolve(star(**tables, **({"link": link} if link else {})))
    for drafter in range(M):
        known = {step: profile[step] for step in ("draft", "draft_prefill")}
        expected = overwritten(of_drafters, drafter, known)
        made = fleet.drafter_times(drafter)
        assert [made.draft, made.prefill] == [StepTime(**time) for time in expected.values()]
    for target in range(N):
        known = {step: verify or profile[step] for step in ("verify", "decode", "verify_prefill")}
        expected = overwritten(of_targets, target, known)
        own = fleet.verifier_times(target)
        assert [own.verify, own.decode, own.prefill] == [StepTime(**time) for time in expected.values()]
        for drafter in range(M):
            near = [tier["link"] for tier in of_drafters if drafter + 1 >= tier["first"] and "link" in tier]
            far = [tier["link"] for tier in of_targets if target + 1 >= tier["first"] and "link" in tier]
            stated = (far or near or [link])[-1]
            resolved = fleet.link(target, drafter)
            assert resolved.time == LinkTime(**(stated or {}))
            assert resolved.held == (stated is not None)


OVERHEADS = {
    way: {"drafter": {"woken": {"mean_s": 1.0 + number}}, "target": {"woken": {"mean_s": 0.1 + number}}}
    for number, way in enumerate(("own", "time_sliced"))
}
DRAFTERS, TARGETS = "drafters", "verifiers"


def on_host(sharing: str, M: int, N: int, sides: tuple[str, ...], **tables: Any) -> Fleet:
    """A fleet with drafters, targets, or both on one device."""
    profile = {
        "name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}, "overhead": OVERHEADS,
        "contention": [1.0, 1.4],
    }  # fmt: skip
    here: dict[str, dict[str, Any]] = {
        side: {"device": "host"} if side in sides else {} for side in (DRAFTERS, TARGETS)
    }
    here[DRAFTERS]["count"], here[TARGETS]["count"] = M, N
    devices = {"host": {"sharing": sharing}} if sides else {}
    return resolve(star(**{"profile": profile, "devices": devices} | here | tables))


@pytest.mark.parametrize(("sharing", "number"), [("contended", 0), ("turns", 1)])
def test_a_way_of_sharing_has_its_own_overhead(sharing: str, number: int) -> None:
    fleet = on_host(sharing, 1, 2, (DRAFTERS, TARGETS))
    assert fleet.drafter_times(0).overhead.woken.mean_s == 1.0 + number
    assert fleet.verifier_times(0).overhead.woken.mean_s == 0.1 + number
    assert fleet.devices["host"].contention == (1.0, 1.4)
    of_targets = on_host(sharing, 1, 2, (TARGETS,))
    assert of_targets.drafter_times(0).overhead.woken.mean_s == 1.0
    assert of_targets.verifier_times(0).overhead.woken.mean_s == 0.1 + number


def test_missing_overheads_are_those_of_own_devices() -> None:
    profile = {"name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}, "overhead": {"own": OVERHEADS["own"]}}
    sliced = on_host("turns", 1, 1, (DRAFTERS, TARGETS), profile=profile)
    assert sliced.drafter_times(0).overhead.woken.mean_s == 1.0


def test_a_replayed_target_has_no_overhead() -> None:
    fleet = on_host("turns", 1, 2, (), verifiers={"kind": "replayed", "count": 2})
    assert fleet.verifier_times(0).overhead == Overhead()
    assert fleet.drafter_times(0).overhead.woken.mean_s == 1.0


def test_fleets_without_a_profile_name_the_missing_key() -> None:
    fleet = resolve(make_scenario({"name": "bare"}))
    for ask in (lambda: fleet.drafter_times(0), lambda: fleet.verifier_times(0), lambda: fleet.link(0)):
        with pytest.raises(InputError, match=r"^scenario 'bare': profile is missing; name a shipped profile"):
            ask()


def test_streams_belong_to_targets_and_drafters_in_turn() -> None:
    fleet = resolve(star(drafters={"count": 2}, verifiers={"count": 3}))
    assert [fleet.target_of(tag) for tag in range(4)] == [0, 1, 2, 0]
    assert [fleet.drafter_of(tag) for tag in range(4)] == [0, 1, 0, 1]
    assert [fleet.drafter_name(drafter) for drafter in range(2)] == ["drafter.1", "drafter.2"]
    assert resolve(star()).drafter_name(0) == "drafter"


def test_only_the_entry_points_take_a_scenario() -> None:
    """Both worlds build from the resolved fleet; only modules where runs begin or end import the scenario."""
    takers = {
        str(path.relative_to(ROOT))
        for room in ("fleet", "sim", "engine")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(name.name == "Scenario" for name in node.names)
    }
    assert takers <= DOORS


sharings = st.sampled_from(["turns", "contended"])


@given(sharings, st.integers(2, 4), st.booleans())
def test_single_stations_have_their_own_device(sharing: str, others: int, drafts: bool) -> None:
    M, N, side = (1, others, DRAFTERS) if drafts else (others, 1, TARGETS)
    assert on_host(sharing, M, N, (side,)) == on_host(sharing, M, N, ())


@pytest.mark.parametrize(("count", "cores", "crowded"), [(1, 2, False), (2, 2, True), (3, 4, False), (4, 4, True)])
def test_more_models_than_cores_crowd_unless_sharing_a_device(count: int, cores: int, crowded: bool) -> None:
    assert crowds(resolve(make_scenario({"verifiers": {"count": count}})), cores) == crowded
    verifiers = {"count": count, "device": "host"}
    shared = make_scenario({"devices": {"host": {}}, "verifiers": verifiers, "drafters": {"device": "host"}})
    assert not crowds(resolve(shared), cores)
    replayed = {"count": count, "kind": "replayed", "verify": {"base_s": 0.01}}
    assert not crowds(resolve(make_scenario({"verifiers": replayed})), cores)
