"""A comparison says what two runs did not share, before it says how far they are apart."""

from typing import Any

import msgspec
import pytest

import specfleet
from specfleet.experiments.compare.compare import doubts
from specfleet.experiments.compare.differences import differences, mean_length_of, sharing
from specfleet.experiments.console.printing import print_comparison
from specfleet.fleet.acceptance.models import Geometric, Recorded
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime, StepTime

SESSIONS = ((5, 4, 5, 5, 3, 5), (5, 5, 5, 4, 5, 2), (4, 5, 5, 5, 5, 5))
PROFILE = HardwareProfile(
    "calibrated",
    draft=StepTime(base_s=0.001),
    verify=StepTime(base_s=0.005),
    link=LinkTime(0.0005),
    acceptance=Recorded(5, SESSIONS),
    provenance={"drafter_model": "small", "target_model": "large", "prompts_file": "demo/calibration"},
)
MINE: dict[str, Any] = {
    "profile": PROFILE,
    "drafters": {"model": "small"},
    "verifiers": {"model": "large", "count": 2},
    "workload": {"requests": 24, "new_tokens": 60},
}
SHARED = {"devices__host__sharing": "turns", "drafters__device": "host", "verifiers__device": "host"}


def simulated(**changes: Any) -> Run:
    """A simulation with changes; two underscores stand for a dot."""
    return specfleet.simulate(
        make_scenario(MINE), {key.replace("__", "."): value for key, value in changes.items()}
    ).run


def measured(cores: int = 8, **changes: Any) -> Run:
    """A run as the engine would have written it: the rows of a simulation."""
    run = simulated(seed=1, **changes)
    host = run.header.host | {"cores": str(cores)}
    return Run(msgspec.structs.replace(run.header, world="engine", host=host), run.table)


def line(first: Run, second: Run, word: str) -> str:
    (found,) = [line for line in differences(first, second) if line.startswith(f"{word}:")]
    return found


def test_two_runs_that_share_all_have_nothing_to_say() -> None:
    assert differences(simulated(), measured()) == []


def test_a_replaced_acceptance_is_named_even_if_equal() -> None:
    alike = simulated(acceptance__model="geometric", acceptance__beta=0.97)
    one, other = mean_length_of(alike), mean_length_of(measured())
    assert one.low < other.high
    assert "[acceptance] in place of profile calibrated's" in line(alike, measured(), "acceptance")


@pytest.mark.parametrize(
    ("acceptance", "replaced"),
    [
        (PROFILE.acceptance, True),
        (Geometric(0.97), False),  # stated, not measured
        (None, False),
    ],
)
def test_comparison_and_note_agree_on_a_replaced_acceptance(acceptance: Any, replaced: bool) -> None:
    profile = msgspec.structs.replace(PROFILE, acceptance=acceptance)
    scenario = make_scenario(MINE | {"profile": profile, "acceptance": {"model": "geometric", "beta": 0.5}})
    result = specfleet.simulate(scenario)
    assert (" in place of profile calibrated's" in line(result.run, measured(), "acceptance")) == replaced
    assert any("replaces what profile calibrated measured" in note for note in result.notes) == replaced


def test_a_comma_in_a_model_path_makes_no_difference() -> None:
    profile = msgspec.structs.replace(PROFILE, provenance=PROFILE.provenance | {"drafter_model": "a, b"})
    scenario = make_scenario(MINE | {"profile": profile, "drafters": {"model": "a, b"}})
    run, ran = specfleet.simulate(scenario).run, measured()
    header = msgspec.structs.replace(ran.header, scenario=scenario)
    assert not [said for said in differences(run, Run(header, ran.table)) if said.startswith("profile")]


def test_a_profile_acceptance_that_the_run_missed_is_named() -> None:
    run = measured(acceptance__model="geometric", acceptance__beta=0.1)  # what its models accepted
    assert "simulated from profile calibrated's (recorded in 3 sessions: 4." in line(simulated(), run, "acceptance")


def test_devices_that_only_one_of_them_shared_are_named() -> None:
    both = measured(**SHARED)
    said = line(simulated(), both, "devices")
    assert "a device of its own for every station in the simulation" in said
    assert "drafters and targets share one (turns) in the run" in said
    assert not [line for line in differences(simulated(**SHARED), both) if line.startswith("devices")]


@pytest.mark.parametrize(("cores", "named"), [(2, True), (3, False)])
def test_fewer_cores_than_models_is_a_difference(cores: int, named: bool) -> None:
    lines = [line for line in differences(simulated(), measured(cores=cores)) if line.startswith("devices:")]
    assert bool(lines) == named
    assert not named or "3 models of the run shared 2 cores" in lines[0]
    with_gpus = measured(cores=cores)
    header = msgspec.structs.replace(with_gpus.header, host=with_gpus.header.host | {"gpus": "1"})
    assert differences(simulated(), Run(header, with_gpus.table)) == []


def test_a_busy_host_is_named() -> None:
    """A fifth of the queued steps waits for up to 0.5 s, the others for nothing."""
    spread = {"spread": "quantiles", "levels": [0, 0.8, 1], "ratios_at": [0, 0, 10]}
    queued = {"queued": {"mean_s": 0.05, "spread": spread}}
    busy = measured(profile__overhead={"own": {"drafter": queued}}, verifiers__count=8)
    assert doubts([measured()]) == []
    assert "of the steps started late; validate on a quieter host" in doubts([busy])[0]


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"provenance": {}}, "profile: calibrated was not calibrated on the models that ran"),
        (
            {"provenance": PROFILE.provenance | {"target_model": "huge"}},
            "profile: calibrated was calibrated on verifiers.model = huge, and large ran",
        ),
        (
            {"provenance": PROFILE.provenance | {"prompts_file": "demo/evaluation"}},
            "prompts: calibrated was calibrated on those of the run, demo/evaluation: it has seen them",
        ),
    ],
)
def test_a_profile_with_other_models_or_equal_prompts_is_named(profile: dict[str, Any], said: str) -> None:
    scenario = make_scenario(MINE | {"profile": msgspec.structs.replace(PROFILE, **profile)})
    assert said in differences(specfleet.simulate(scenario).run, measured())


def test_profiles_of_both_sides_are_named() -> None:
    replace, own = msgspec.structs.replace, make_scenario(MINE)
    sheet = replace(PROFILE, name="sheet", provenance={}, sources={"draft.base_s": "estimated: a roofline"})
    drafters, verifiers = replace(own.drafters, profile=sheet), replace(own.verifiers, profile=PROFILE)
    sides = replace(
        own, profile="", drafters=drafters, verifiers=verifiers, link=PROFILE.link, acceptance=Geometric(0.9)
    )
    run = specfleet.simulate(sides).run
    assert [line for line in differences(run, measured()) if line.startswith("profile")] == [
        "profile: sheet drafts for calibrated: step times estimated, not measured",
        "profile: sheet was not calibrated on the models that ran",
    ]
    assert any("sheet drafts for calibrated (" in line for line in differences(run, simulated()))


@pytest.mark.parametrize(
    ("key", "value"),
    [("drafters.depth", 4), ("workload.prompts", "mine.jsonl"), ("workload.new_tokens", 48), ("precision", "float64")],
)
def test_any_other_key_that_differs_is_named_with_both_values(key: str, value: Any) -> None:
    said = differences(simulated(**{key.replace(".", "__"): value}), measured())
    assert [line for line in said if line.startswith(f"{key}: {value} in the simulation, ")]


def test_differences_come_before_errors_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = specfleet.Result(simulated(drafters__depth=4)), specfleet.Result(measured())
    comparison = specfleet.compare(second, first)  # in any order
    assert comparison.differences == differences(first.run, second.run)
    assert comparison.line().startswith("tokens/s: simulated ")
    assert "not shared: drafters.depth" in comparison.line()
    print_comparison("", comparison)
    printed = capsys.readouterr().out
    assert printed.index("not shared: drafters.depth") < printed.index("rounds_per_s")
    assert msgspec.json.decode(msgspec.json.encode(comparison))["differences"] == comparison.differences


def test_sharing_in_words() -> None:
    together = make_scenario({"devices": {"box": {}}, "verifiers": {"device": "box", "count": 2}})
    assert sharing(resolve(together)) == "targets share one (turns)"


def test_a_replayed_run_has_links_but_no_models() -> None:
    run = measured()
    replayed = Run(msgspec.structs.replace(run.header, replayed=("drafters", "targets")), run.table)
    lines = differences(simulated(), replayed)
    assert not any("models" in line for line in lines)
    said = "links and delays: replayed stations have their own host's, and the simulation had those"
    assert any(line.startswith(said) for line in lines)
