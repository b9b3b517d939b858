"""The scenario that `calibrate` writes beside a profile: it reads back as it was meant, and fits the host."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from specfleet.calibration.host import fitted_scenario, fitting, fitting_path, scenario_of_pair, write_fitting
from specfleet.experiments.notes import notes_of
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.scenario.reading import make_scenario, read_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile, write_profile
from specfleet.fleet.times.step_time import StepTime
from tests.helpers.cli import Say

if TYPE_CHECKING:
    from specfleet.calibration.run import Bench

TWO_CORES = {"cores": "2"}


def measured(
    provenance: dict[str, str] = TWO_CORES, contention: tuple[float, ...] = (1.0, 1.4, 1.6)
) -> HardwareProfile:
    return HardwareProfile(
        "measured",
        draft=StepTime(base_s=0.001),
        verify=StepTime(base_s=0.005),
        contention=contention,
        acceptance=Recorded(5, ((5, 4, 5), (3, 5, 5))),
        provenance=provenance,
    )


def written(scenario: Scenario, profile: HardwareProfile, folder: Path) -> Scenario:
    write_profile(profile, folder / "mine.json")
    assert write_fitting(scenario, profile, "mine.json", folder / "mine.toml")
    return read_scenario(folder / "mine.toml")


def pair(profile: HardwareProfile, **options: Any) -> Scenario:
    return scenario_of_pair(fitted_scenario(None, options, "demo/calibration"), profile)


@pytest.mark.parametrize("name", sorted(shipped_files("scenarios")))
def test_the_scenario_that_is_written_reads_back_as_it_fits(name: str, tmp_path: Path) -> None:
    given = scenario_of(name)
    fits = fitting(given, measured())
    if fits.acceptance is not None:  # its file is found beside the scenario
        fits = msgspec.structs.replace(fits, acceptance=type(fits.acceptance)(str(tmp_path / "mine.signals.parquet")))
    assert written(given, measured(), tmp_path) == fits
    are_elsewhere = any(tier.profile for tier in fits.verifiers.tiers)  # replayed, and not measured here
    assert any("[acceptance]" in note for note in notes_of(fits)) == are_elsewhere


def test_a_pair_on_two_cores_is_time_sliced(tmp_path: Path) -> None:
    fits = written(pair(measured()), measured(), tmp_path)
    assert fits.acceptance is None
    assert fits.profile == measured()
    assert fits.verifiers.count == 2
    assert fits.devices[fits.drafters.device].sharing == "turns"
    assert fits.verifiers.device == fits.drafters.device
    assert fits.workload.prompts == "demo/evaluation"


@pytest.mark.parametrize(
    ("provenance", "contention", "shared"),
    [
        ({"cores": "16"}, (1.0, 1.0, 1.02), False),
        ({"cores": "16"}, (1.0, 1.3, 1.6), True),
        ({"cores": "2"}, (1.0, 1.0, 1.0), True),
        ({"cores": "16", "gpu": "one"}, (1.0, 1.0, 1.0), True),
        ({"cores": "16", "gpu": "one", "gpus": "2"}, (1.0, 1.3, 1.6), True),
        ({"cores": "16", "gpu": "one", "gpus": "3"}, (1.0, 1.3, 1.6), False),
    ],
)
def test_stations_share_a_device_if_they_slow_each_other(
    provenance: dict[str, str], contention: tuple[float, ...], shared: bool
) -> None:
    profile = measured(provenance, contention)
    assert bool(fitting(pair(profile), profile).devices) == shared


def test_named_devices_stay_and_remote_accelerators_need_none() -> None:
    named = make_scenario({"devices": {"box": {"sharing": "contended"}}, "drafters": {"device": "box"}})
    assert fitting(named, measured()).devices.keys() == {"box"}
    replayed = make_scenario({"verifiers": {"kind": "replayed", "count": 8, "verify": {"base_s": 0.01}}})
    assert fitting(replayed, measured()).devices == {}
    assert fitting(replayed, measured()).verifiers.verify == StepTime(base_s=0.01)


def test_stated_times_of_real_targets_give_way_to_measured_ones() -> None:
    stated = make_scenario({"link": {"latency_s": 0.1}, "verifiers": {"verify": {"base_s": 1.0}}})
    fits = fitting(stated, measured())
    assert fits.link is None
    assert fits.verifiers.verify is None


def test_models_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    fits = fitting(pair(measured(), drafters={"model": "small"}), measured())
    assert fits.drafters.model == str(tmp_path / "small")
    assert fits.verifiers.model == "demo"


def test_a_fitting_scenario_has_a_name_of_its_own(tmp_path: Path) -> None:
    profile, fits = tmp_path / "mine.json", tmp_path / "mine.toml"
    assert (
        fitting_path(profile) == fitting_path(profile, "serving") == fitting_path(profile, tmp_path / "a.toml") == fits
    )
    assert fitting_path(profile, fits) == fitting_path(fits) == tmp_path / "mine-fits.toml"


def test_calibrate_leaves_the_profile_and_the_scenario_and_names_both(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("specfleet.calibration.run.calibrate", lambda *_: measured())
    monkeypatch.chdir(tmp_path)
    calibrate = ("calibrate", "-o", "mine.json")
    assert "scenario that fits it: mine.toml" in say(*calibrate, "--depth", "3").err
    assert read_scenario(Path("mine.toml")).drafters.depth == 3
    assert "note: mine.toml was there already and stays" in say(*calibrate).err
    assert read_scenario(Path("mine.toml")).drafters.depth == 3
    assert "mine-fits.toml" in say(*calibrate, "--scenario", "mine.toml", "--set", "verifiers.count=3").err
    assert read_scenario(Path("mine-fits.toml")).verifiers.count == 3


@pytest.mark.parametrize("left_out", [{}, {"contention": "2 targets at once with their drafter: needs much"}])
def test_kept_stages_go_with_the_profile_unless_one_was_left_out(
    left_out: dict[str, str], say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    contention = (1.0,) if left_out else (1.0, 1.4)
    profile = msgspec.structs.replace(
        measured({"gpu": "one"}, contention), measured={"left_out": left_out} if left_out else {}
    )

    def calibrate(_scenario: Scenario, bench: "Bench", _signals: Path) -> HardwareProfile:
        bench.stages.kept.write("links", 1)
        return profile

    monkeypatch.setattr("specfleet.calibration.run.calibrate", calibrate)
    printed = say("calibrate", "-o", tmp_path / "mine.json").out
    assert (tmp_path / "mine.calibration" / "links.stage").exists() == bool(left_out)
    assert (tmp_path / "mine.calibration").exists() == bool(left_out)
    assert ("how much further steps at once" in printed) == bool(left_out)
    assert ("not measured: 2 targets at once" in printed) == bool(left_out)
    comment = "# The profile lacks how much further steps at once slow each other: 2 targets at once"
    written_scenario = (tmp_path / "mine.toml").read_text()
    assert (comment in written_scenario) == bool(left_out)
    assert ("what this costs was not measured" in written_scenario) == bool(left_out)
    assert read_scenario(tmp_path / "mine.toml").verifiers.count == 1


def test_what_is_asked_of_a_calibration_reaches_it(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from specfleet.calibration.stages import Asked

    def calibrate(_scenario: Scenario, bench: "Bench", _signals: Path) -> HardwareProfile:
        assert bench.stages.asked == Asked(("3 targets", "warm-up"), accept_unsteady=True)
        bench.stages.kept.write("links", 1)
        made = measured({"unsteady host": "the times of verify are 37% off their fit"})
        return msgspec.structs.replace(made, measured={"steps": {"verify": {"error": 0.37, "steps": 9}}})

    monkeypatch.setattr("specfleet.calibration.run.calibrate", calibrate)
    asked = ("--without", "3 targets", "--without", "warm-up", "--accept-unsteady")
    said = say("calibrate", "-o", tmp_path / "mine.json", *asked)
    assert "unsteady host: the times of verify are 37% off their fit; repeat on a quiet host" in said.err
    assert "step times measured on an unsteady host" in said.out
    assert (tmp_path / "mine.calibration" / "links.stage").exists(), "a rerun repeats only what was off"
    for command in ("show", "simulate"):
        assert "measured on an unsteady host" in say(command, tmp_path / "mine.toml").out


@pytest.mark.parametrize(("prompts", "options", "noted"), [
    ("mine.jsonl", (), True), ("mine.jsonl", ("--prompts", "other.jsonl"), False), ("demo/evaluation", (), False),
])  # fmt: skip
def test_own_prompts_that_are_not_measured_are_noted(
    prompts: str, options: tuple[str, ...], noted: bool, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("specfleet.calibration.run.calibrate", lambda *_: measured())
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f'[workload]\nprompts = "{prompts}"\n')
    said = say("calibrate", "--scenario", "mine.toml", "-o", "pair.json", *options).err
    line = "note: times and acceptance are of demo/calibration, not .*mine.jsonl'; --prompts FILE names others"
    assert bool(re.search(line, said)) == noted


def test_a_calibration_says_that_it_measures_no_tier(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    asked: list[Scenario] = []
    monkeypatch.setattr("specfleet.calibration.run.calibrate", lambda of, *_: asked.append(of) or measured())
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[drafters]\ncount = 2\ntiers = [{first = 2, model = "large"}]\n')
    said = say("calibrate", "--scenario", "mine.toml", "-o", "pair.json").err
    assert "measured is drafters.model = 'demo' beside verifiers.model = 'demo', and no tier" in said
    assert asked[0].drafters.tiers == ()
