"""Mixed hardware: each side has its own profile, and nothing of a side comes from the other's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from specfleet.experiments.notes import notes_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.run import read_run, write_run
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.reading import change_scenario, make_scenario, read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, Tier
from specfleet.fleet.scenario.show import describe_fleet
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.fleet.times.profile import HardwareProfile, read_profile, write_profile
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate

EDGE: dict[str, Any] = {
    "name": "edge", "draft": {"base_s": 0.2, "per_token_s": 0.1}, "verify": {"base_s": 99.0},
    "decode": {"base_s": 98.0}, "draft_prefill": {"base_s": 0.3}, "verify_prefill": {"base_s": 97.0},
    "catch_up_s": 0.01, "overhead": {"own": {
        "drafter": {"queued": {"mean_s": 0.02}, "woken": {"mean_s": 0.04}, "after": {"mean_s": 0.03}},
        "target": {"woken": {"mean_s": 96.0}},
    }}, "idle": {"gaps_s": [0.0, 1.0], "slowdowns": [1.0, 1.5]}, "vocabulary": 95,
    "hidden": 94, "positions": 300, "power": {"idle_w": 1.0, "draft_w": 10.0, "verify_w": 93.0},
    "sources": {"draft": "assumed"},
}  # fmt: skip
RACK: dict[str, Any] = {
    "name": "rack", "draft": {"base_s": 77.0}, "verify": {"base_s": 2.0, "per_token_s": 0.01},
    "decode": {"base_s": 1.0}, "draft_prefill": {"base_s": 76.0}, "verify_prefill": {"base_s": 0.7},
    "catch_up_s": 75.0, "overhead": {"own": {
        "drafter": {"queued": {"mean_s": 74.0}},
        "target": {"queued": {"mean_s": 0.07}, "woken": {"mean_s": 0.06}, "after": {"mean_s": 0.05}},
    }},
    "vocabulary": 100, "hidden": 16, "positions": 400,
    "power": {"idle_w": 50.0, "draft_w": 73.0, "verify_w": 300.0}, "sources": {"verify": "estimated by a roofline"},
}  # fmt: skip
LINK = {"latency_s": 0.05}
COMMON: dict[str, Any] = {
    "acceptance": {"model": "geometric", "beta": 0.8},
    "workload": {"requests": 12, "prompt_tokens": 10, "new_tokens": 40},
    "link": LINK,
}


def mixed(edge: dict[str, Any] = EDGE, rack: dict[str, Any] = RACK, **changes: Any) -> Scenario:
    sides = {"drafters": {"profile": edge}, "verifiers": {"profile": rack, "count": 2}}
    return make_scenario(COMMON | sides | changes)


def alone(profile: dict[str, Any], **changes: Any) -> Scenario:
    return make_scenario(COMMON | {"profile": profile, "verifiers": {"count": 2}} | changes)


def test_each_side_has_its_own_profiles_times() -> None:
    both, edge, rack = resolve(mixed()), resolve(alone(EDGE)), resolve(alone(RACK))
    assert both.drafters.times == edge.drafters.times
    assert both.verifiers.times == rack.verifiers.times
    assert (both.vocabulary, both.hidden) == (100, 16)  # the target's: its distributions travel
    assert both.drafters.positions == 300  # of the model that has learned fewer
    assert (both.power, both.target_power) == (edge.power, rack.power)


def unlike(base: dict[str, Any], first: int, profile: dict[str, Any], **changes: Any) -> Scenario:
    """Two targets; those from `first` on are of another profile."""
    return alone(base, verifiers={"count": 2, "tiers": [{"first": first, "profile": profile}]}, **changes)


def test_a_tier_of_all_targets_is_the_sides_profile() -> None:
    assert simulate(unlike(EDGE, 1, RACK)).digest() == simulate(mixed()).digest()
    drafting = {"tiers": [{"first": 1, "profile": EDGE}]}
    assert simulate(alone(RACK, drafters=drafting)).digest() == simulate(mixed()).digest()


def test_unlike_targets_decode_as_in_fleets_of_their_own_kind() -> None:
    plain = {"drafters": {"count": 0}, "link": None}
    columns = ["event", "kind", "tag", "time_s", "duration_s"]

    def rows_of(scenario: Scenario, station: str) -> list[Any]:
        rows = simulate(scenario).frame()
        return rows[rows.station == station][columns].to_numpy().tolist()

    both = unlike(EDGE, 2, RACK, **plain)
    assert rows_of(both, "verifier.1") == rows_of(alone(EDGE, **plain), "verifier.1")
    assert rows_of(both, "verifier.2") == rows_of(alone(RACK, **plain), "verifier.2")


def test_all_profiles_of_a_fleet_are_in_name_digest_and_basis() -> None:
    both, edge = resolve(unlike(EDGE, 2, RACK)), resolve(alone(EDGE))
    assert (both.profile, both.basis) == ("edge drafts for edge and rack", "estimated")
    assert both.profile_digest not in (edge.profile_digest, resolve(mixed()).profile_digest)
    assert resolve(unlike(EDGE, 2, EDGE)).profile_digest == edge.profile_digest
    assert edge.power is not None
    assert both.power is None  # a fleet has one power of its targets


def test_each_target_has_the_memory_of_its_own_profile() -> None:
    small, large = ({"free_bytes": 16.0 * blocks, "token_bytes": 1.0} for blocks in (5, 9))
    scenario = unlike(EDGE | {"kv": large}, 2, RACK | {"kv": small})
    verifiers = resolve(scenario).verifiers
    assert [verifiers.batching_of(target).kv_blocks for target in (0, 1)] == [9, 5]
    assert verifiers.batching.kv_blocks == 5
    shown = {where: value for where, what, value in describe_fleet(resolve(scenario)) if what == "batching"}
    assert ["kv_blocks = 9" in shown["verifier.1"], "kv_blocks = 5" in shown["verifier.2"]] == [True, True]
    stated = change_scenario(scenario, {"verifiers.kv_tokens": 160})
    assert resolve(stated).verifiers.kv_blocks == ()
    with pytest.raises(InputError, match="do not fit into a KV cache of 16 tokens"):
        resolve(change_scenario(scenario, {"verifiers.tiers.0.profile.kv.free_bytes": 16}))


def test_one_profile_named_twice_is_one_profile() -> None:
    twice, once = mixed(EDGE, EDGE), alone(EDGE)
    assert simulate(twice).digest() == simulate(once).digest()
    resolved, plain = resolve(twice), resolve(once)
    assert msgspec.structs.replace(
        resolved,
        drafters=msgspec.structs.replace(resolved.drafters, profile=""),
        verifiers=msgspec.structs.replace(resolved.verifiers, profile=""),
    ) == plain  # fmt: skip
    assert resolved.drafters.profile.startswith("edge (assumed")


def test_sides_without_a_profile_use_the_scenarios() -> None:
    beside = alone(EDGE, verifiers={"profile": RACK, "count": 2})
    assert simulate(beside).digest() == simulate(mixed()).digest()
    other = alone(RACK, drafters={"profile": EDGE})
    assert simulate(other).digest() == simulate(mixed()).digest()


def test_links_and_acceptance_are_the_scenarios_or_its_profiles() -> None:
    shared = RACK | {"link": {"latency_s": 0.4}, "acceptance": {"model": "geometric", "beta": 0.5}}
    content = {key: value for key, value in COMMON.items() if key == "workload"}
    beside = make_scenario(content | {"profile": shared, "drafters": {"profile": EDGE}})
    fleet = resolve(beside)
    assert fleet.link(0).time.latency_s == 0.4
    assert fleet.acceptance == resolve(make_scenario(content | {"profile": shared})).acceptance
    assert any("the link and acceptance are profile rack's" in note for note in notes_of(beside))
    assert not any("measured between other machines" in note for note in notes_of(mixed()))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"link": None}, "link is missing; neither drafters.profile nor verifiers.profile"),
        ({"acceptance": None}, "acceptance is missing, and its profile has none either"),
        ({"drafters": {}}, "drafters.profile is missing, and so is profile"),
        ({"verifiers": {}}, "verifiers.profile is missing, and so is profile"),
        ({"drafters": {"profile": "none.json"}}, "drafters.profile: no file 'none.json'"),
        (
            {
                "drafters": {"profile": EDGE, "device": "host"},
                "verifiers": {"profile": RACK, "device": "host"},
                "devices": {"host": {}},
            },
            "drafters.profile is of a machine of that side's own, and both are on devices.host",
        ),
    ],
)
def test_values_missing_in_both_profiles_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        simulate(mixed(**changes))


def test_labels_of_both_profiles_are_kept() -> None:
    fleet = resolve(mixed())
    assert fleet.profile == "edge drafts for rack"
    assert fleet.basis == "estimated"
    rows = [(place, value) for place, what, value in describe_fleet(fleet) if what == "profile"]
    own = [value.partition(";")[0] for place, value in rows if place != fleet.name]
    assert own == ["edge (assumed", "rack (estimated"]
    assert any("profile rack: step times estimated" in note for note in notes_of(mixed()))
    assert resolve(mixed(rack={**RACK, "sources": {}})).basis == "assumed"


def test_energy_is_that_of_each_side_s_devices() -> None:
    run = simulate(mixed())
    measured = measure(run)
    drafting, verifying = measured["load"].value, 2 * measured["target_load"].value
    watts = drafting * 10 + (1 - drafting) * 1 + verifying * 300 + (2 - verifying) * 50
    assert measured["power_w"].value == pytest.approx(watts)
    without = {key: value for key, value in RACK.items() if key != "power"}
    assert "power_w" not in measure(simulate(mixed(rack=without)))


def test_the_equations_take_S_from_one_and_Z_from_the_other() -> None:
    star = predict(mixed())
    assert star.S_s == pytest.approx(predict(alone(EDGE)).S_s)
    assert star.Z_s == pytest.approx(predict(alone(RACK)).Z_s, rel=1e-6)


def test_files_are_relative_to_the_scenarios_folder(tmp_path: Path) -> None:
    for content in (EDGE, RACK):
        write_profile(msgspec.convert(content, HardwareProfile), tmp_path / f"{content['name']}.json")
    file = tmp_path / "mixed.toml"
    file.write_text(
        'acceptance = {model = "geometric", beta = 0.8}\nlink = {latency_s = 0.05}\n'
        "workload = {requests = 12, prompt_tokens = 10, new_tokens = 40}\n"
        '[drafters]\nprofile = "edge.json"\n[verifiers]\ncount = 2\nprofile = "rack.json"\n'
    )
    scenario = read_scenario(file)
    run = simulate(scenario)
    assert run.digest() == simulate(mixed()).digest()
    write_run(run, tmp_path / "run.parquet")
    kept = read_run(tmp_path / "run.parquet").header.scenario
    assert kept.drafters.profile == read_profile("edge.json", tmp_path)
    assert simulate(kept).digest() == run.digest()
    assert simulate(change_scenario(kept, ["drafters.count=0"])).digest() != run.digest()
    assert resume_digest(scenario) == scenario.digest()


def test_a_tiers_profile_is_named_read_changed_and_written(tmp_path: Path) -> None:
    write_profile(msgspec.convert(RACK, HardwareProfile), tmp_path / "rack.json")
    file = tmp_path / "tiers.toml"
    tier = '[[verifiers.tiers]]\nfirst = 2\nprofile = "rack.json"\n[[verifiers.tiers]]\nfirst = 3\nstep = "2.5s"\n'
    file.write_text(f'profile = "rtx-4090"\n[verifiers]\ncount = 3\n{tier}')
    scenario = read_scenario(file)
    assert scenario.verifiers.tiers[0].profile == read_profile("rack.json", tmp_path)
    again = tmp_path / "again.toml"
    again.write_text("\n".join(scenario_lines(scenario, "rtx-4090")))
    assert resolve(read_scenario(again)).verifiers.times == resolve(scenario).verifiers.times
    other = change_scenario(scenario, {"verifiers.tiers.0.profile": "a100"})
    assert resolve(other).profile == "rtx-4090 drafts for rtx-4090 and a100"
    assert any("profile rack: step times estimated" in note for note in notes_of(scenario))
    for key, says in (
        ("0.profile", "verifiers.tiers.0.profile: no file 'none'"),
        ("2.first", "'2' is no place in a list of 2"),
    ):
        with pytest.raises(InputError, match=says):
            change_scenario(scenario, {f"verifiers.tiers.{key}": "none"})
    assert msgspec.json.encode(Tier(2)) == b'{"first":2,"step":null,"link":null}'  # as digests have it
