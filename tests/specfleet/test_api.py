"""The Python API as users meet it: light to import, one with the command line, results that become frames."""

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import specfleet
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.shown import MAX_ROWS, with_ends
from tests.helpers.cli import Say

SMALL = {"workload.requests": 20, "workload.new_tokens": 24}


@pytest.fixture(scope="module")
def result() -> specfleet.Result:
    return specfleet.simulate("star", SMALL)


@pytest.fixture(scope="module")
def swept() -> specfleet.Sweep:
    return specfleet.sweep("star", {"verifiers.count": [2, 1]}, SMALL, seeds=2, jobs=1)


def test_every_public_name_is_there_and_listed() -> None:
    for name in specfleet.__all__:
        assert getattr(specfleet, name) is not None
    assert set(specfleet.__all__) <= set(dir(specfleet))
    seen = re.findall(r"from (\S+) import (\w+) as", Path(specfleet.__file__).read_text())
    assert sorted(seen) == sorted((home, name) for home, names in specfleet.HOMES.items() for name in names.split())
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = specfleet.simulat


CHANGED: list[tuple[list[str], dict[str, Any], dict[str, Any]]] = [
    (["verifiers.count=8", "seed=3"], {"verifiers.count": 8, "seed": 3}, {"verifiers": {"count": 8}, "seed": 3}),
    (["drafters={depth = 3}"], {"drafters": {"depth": np.int64(3)}}, {"drafters": {"depth": 3}}),
    (
        ["drafters.order=priority", "verifiers.priorities=[1, 2]"],
        {"drafters.order": "priority", "verifiers.priorities": (1, 2)},
        {"drafters": {"order": {"policy": "priority"}}, "verifiers": {"priorities": [1, 2]}},
    ),
    (["profile=a100"], {"profile": "a100"}, {"profile": "a100"}),
    (
        ["acceptance={model = 'per-position', survival = [0.8, 0.5]}"],
        {"acceptance": {"model": "per-position", "survival": [0.8, 0.5]}},
        {"acceptance": {"model": "per-position", "survival": np.array([0.8, 0.5])}},
    ),
]


@pytest.mark.parametrize(("texts", "mapping", "keywords"), CHANGED)
def test_changes_are_the_same_however_they_are_written(
    texts: list[str], mapping: dict[str, Any], keywords: dict[str, Any]
) -> None:
    from specfleet.cli.options import settings

    file = shipped_files("scenarios")["star"]
    by_text = specfleet.scenario_of(file, settings(texts)).digest()
    assert by_text != specfleet.scenario_of(file).digest()
    assert specfleet.scenario_of(file, mapping).digest() == by_text
    assert specfleet.scenario_of(file, **keywords).digest() == by_text
    assert specfleet.scenario_of("star", mapping).digest() == by_text
    assert specfleet.scenario_of(specfleet.scenario_of("star"), mapping).digest() == by_text


def test_a_profile_as_it_came_from_calibration_is_a_change() -> None:
    profile = specfleet.scenario_of("star", profile="jetson-orin").profile
    assert specfleet.scenario_of("star", profile=profile) == specfleet.scenario_of("star", profile="jetson-orin")


def test_a_file_comes_before_a_shipped_scenario_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert specfleet.scenario_of("star").name == "star"
    (tmp_path / "star").write_text('name = "mine"')
    assert specfleet.scenario_of("star").name == "mine"


WRONG = {
    "unknown key": ("drafters.dept=3", ["drafters.dept", "3", "nearest:", "depth"]),
    "unknown table": ("drafter.depth=3", ["drafter", "nearest:", "drafters"]),
    "wrong type": ('drafters.depth="five"', ["drafters.depth", "'five'", "int"]),
    "N < 1": ("verifiers.count=0", ["verifiers.count", "0", ">= 1"]),
    "beta above one": ("acceptance.beta=1.5", ["acceptance.beta", "1.5", "<= 1"]),
    "unknown model of acceptance": ("acceptance.model=lucky", ["acceptance.model", "lucky", "beta-geometric"]),
    "missing parameter": ("acceptance={model='beta-geometric', a=1.0}", ["acceptance", "a and b"]),
    "unknown policy": ("drafters.order=lifo", ["drafters.order", "lifo", "fifo", "priority"]),
    "missing profile": ("profile=none.json", ["none.json", "rtx-4090", "jetson-orin"]),
    "unknown device": ("drafters.device=gpu7", ["drafters.device", "gpu7", "[devices.NAME]"]),
    "unknown sharing": ("devices.gpu.sharing=love", ["devices.gpu.sharing", "love", "turns", "contended"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_in_python_and_on_the_command_line(case: str, say: Say) -> None:
    change, expected = WRONG[case]
    file = str(shipped_files("scenarios")["star"])
    status, out, err = say("simulate", file, "--set", change)
    with pytest.raises(specfleet.InputError) as error:
        specfleet.simulate(file, [change])
    assert (status, out, err) == (2, "", f"specfleet: {error.value}\n")
    assert err.count("\n") == 1
    assert all(part in err for part in (file, *expected))


@pytest.mark.parametrize("command", ["simulate", "analytic", "show"])
def test_python_and_the_command_line_give_the_same_numbers(command: str, say: Say) -> None:
    changes = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    ours = getattr(specfleet, command)("star", SMALL)
    shown = msgspec.json.decode(say(command, "star", *changes, "--json").out)
    expected = shown["metrics"] if command == "simulate" else shown
    plain = with_ends(ours.metrics) if command == "simulate" else ours
    assert msgspec.json.decode(msgspec.json.encode(plain)) == expected


def test_python_and_command_line_sweeps_give_the_same_table(swept: specfleet.Sweep, tmp_path: Path, say: Say) -> None:
    changes = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    options = ["--vary", "verifiers.count=2,1", "--seeds", "2", "--jobs", "1"]
    assert say("sweep", "star", "-o", tmp_path / "typed", *options, *changes).status == 0
    kept = specfleet.sweep("star", ["verifiers.count=2,1"], SMALL, out=tmp_path / "called", seeds=2, jobs=1)
    tables = [(tmp_path / how / "sweep.csv").read_text() for how in ("typed", "called")]
    assert tables[0] == tables[1]
    assert kept.frame().equals(swept.frame())


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["simulate", "star", "--set", "seed=1", "--set", "seed=2"], "--set seed: stands twice; give it once"),
        (
            ["sweep", "star", "--set", "seed=1", "--vary", "seed=1:2", "-o", "swept"],
            "--set seed: --vary gives its values",
        ),
    ],
)
def test_a_key_has_one_source_of_values(command: list[str], reason: str, say: Say) -> None:
    said = say(*command)
    assert (said.status, reason in said.err) == (2, True)
    with pytest.raises(specfleet.InputError, match="leave one of them out"):
        specfleet.sweep("star", {"seed": [1, 2]}, seed=3)


def test_a_mapping_is_a_scenario_and_a_duration_a_time() -> None:
    tables = {
        "profile": {"name": "own", "draft": "10ms", "verify": {"base_s": 0.06}}, "link": "2 ms",
        "acceptance": {"model": "geometric", "beta": 0.8}, "workload": {"requests": 20},
    }  # fmt: skip
    scenario = specfleet.scenario_of(tables, {"verifiers.verify": "30ms"}, verifiers={"count": 3})
    assert scenario.profile.draft.base_s == 0.01
    assert scenario.verifiers.verify.base_s == 0.03
    assert scenario.link.latency_s == 0.002
    assert tables["profile"]["draft"] == "10ms"
    assert specfleet.analytic(tables, {"verifiers.count": 3}).N_full == 8  # Z = 60 + 4 ms, S = 10 ms
    with pytest.raises(specfleet.InputError, match="'MB' does not fit"):
        specfleet.scenario_of(tables, link="2 MB")


def test_a_run_becomes_frames(result: specfleet.Result) -> None:
    frame = result.frame()
    estimate = ["metric", "value", "low", "high", "unit", "times_longer", "drifting"]
    assert list(frame.columns) == [*estimate, "p50", "p90", "p99"]
    assert dict(zip(frame.metric, frame.value, strict=True)) == {
        name: metric.value for name, metric in result.metrics.items()
    }
    assert len(result.rows()) == result.run.table.num_rows
    assert {"wait_s", "return_s", "acceptance_length"} <= set(result.rounds().columns)
    assert len(result.targets()) == result.scenario.verifiers.count
    assert result.targets().throughput.sum() == pytest.approx(result.metrics["throughput"].value)


@pytest.mark.parametrize("name", ["star", "tree", "amusd", "serving"])
def test_the_rounds_of_the_targets_are_those_of_the_run(name: str) -> None:
    """Ahead of a target a round is a verification; there, and on its own device, no station waits."""
    result = specfleet.simulate(name, {"workload.requests": 24})
    targets, metrics = result.targets(), result.metrics
    assert targets.rounds_per_s.mean() == pytest.approx(metrics["rounds_per_s_per_target"].value)
    counted = targets.acceptance_length.notna()
    weighed = (targets.acceptance_length * targets.rounds_per_s)[counted].sum() / targets.rounds_per_s.sum()
    assert weighed == pytest.approx(metrics["acceptance_length"].value)
    assert ("wait_s" in targets) == ("return_s" in targets) == ("wait_s" in metrics)
    assert result.rounds().acceptance_length.mean() > 0


def test_a_run_survives_its_file(result: specfleet.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run.parquet")
    again = specfleet.read_run(tmp_path / "run.parquet")
    assert again.metrics == result.metrics
    assert again.scenario == result.scenario
    assert repr(again) == repr(result)


def test_a_sweep_becomes_a_wide_frame_in_the_order_asked(swept: specfleet.Sweep) -> None:
    frame = swept.frame()
    assert list(frame["verifiers.count"]) == [2, 1]
    assert list(frame.columns[:5]) == ["verifiers.count", "world", "throughput", "throughput_low", "throughput_high"]
    assert frame.columns[-1] == "error"
    for row, cell in zip(frame.to_dict("records"), swept.cells, strict=True):
        metric = cell.metrics["throughput"]
        assert (row["throughput"], row["throughput_low"]) == (metric.value, metric.low)
        assert row["analytic_throughput"] == specfleet.analytic("star", SMALL | cell.cell).throughput.with_bonus
    assert swept.errors == []


def test_a_comparison_takes_runs_and_files(result: specfleet.Result, tmp_path: Path) -> None:
    slower = specfleet.simulate("star", SMALL, link={"latency_s": 0.02})
    slower.save(tmp_path / "slower.parquet")
    comparison = specfleet.compare(result, tmp_path / "slower.parquet")
    (row,) = comparison.frame().query("quantity == 'throughput'").to_dict("records")
    values = [run.metrics["throughput"].value for run in (result, slower)]
    assert (row["sim"], row["engine"]) == tuple(values)
    assert row["error"] == comparison.mape["throughput"] == pytest.approx(values[0] / values[1] - 1)
    assert comparison.notes == ["both runs are of the world 'sim': sim is the first here, engine the second"]


def test_a_resolved_fleet_shows_its_changes() -> None:
    shared = {"devices": {"gpu": {"sharing": "turns"}}, "drafters.device": "gpu", "verifiers.device": "gpu"}
    shown = specfleet.show("star", shared, verifiers={"count": 2, "verify": {"base_s": 0.5}})
    frame = shown.frame()
    assert list(frame.columns) == ["where", "what", "value"]
    assert "500 ms" in set(frame.value)


def test_results_show_themselves(result: specfleet.Result, swept: specfleet.Sweep) -> None:
    prediction = specfleet.analytic("star", verifiers={"count": 1})
    fleet = specfleet.show("star")
    for shown in (result, swept, prediction, specfleet.compare(result, result), fleet):
        assert repr(shown) == f"<{shown.line()}>"
        assert "\n" not in repr(shown)
        html = shown._repr_html_()
        assert html.count("<tr") == 1 + min(len(shown.frame()), MAX_ROWS + 1)
        assert all(str(column) in html for column in shown.frame().columns)
    assert "star, world: sim, seed 0" in repr(result)
    assert "N = 1: under-loaded" in repr(prediction)


def test_figures_are_drawn_from_results_and_written_on_demand(
    result: specfleet.Result, swept: specfleet.Sweep, tmp_path: Path
) -> None:
    for drawn in (result.figure(), swept.figure()):
        assert drawn._repr_png_().startswith(b"\x89PNG")
    specfleet.figure("sweep", swept, tmp_path / "throughput.svg")
    assert "<svg" in (tmp_path / "throughput.svg").read_text()
    with pytest.raises(specfleet.InputError, match="figure sweep: drawn from a sweep's folder or table, not from a"):
        specfleet.figure("sweep", result)


def test_a_baseline_has_as_many_streams() -> None:
    """Without a number of streams there is one for each drafter, and its target decodes them, too, without drafts."""
    fleet = {"drafters.place": "own", "drafters.count": 8, "workload.requests": 24}
    by_count, stated = ({"workload.streams": streams} | fleet for streams in (0, 8))
    assert specfleet.simulate("serving", by_count).metrics == specfleet.simulate("serving", stated).metrics


def test_a_run_that_is_played_back_has_no_simulated_baseline() -> None:
    """Measured steps against the profile's plain ones would be no speedup."""
    first = specfleet.simulate("serving", workload={"requests": 12, "streams": 12})
    assert "speedup" in first.metrics
    assert first.metrics.keys() - specfleet.play_back(first, ["steps"]).metrics.keys() == {"speedup"}


@pytest.mark.parametrize(
    ("name", "changes", "lost"),
    [("serving", {}, {"speedup"}), ("star", {}, set()), ("star", {"drafters.count": 0}, set())],
)
def test_a_run_is_known_without_its_workload_file(
    name: str, changes: dict[str, int], lost: set[str], tmp_path: Path
) -> None:
    """But for what takes another simulation."""
    file = tmp_path / "lengths.csv"
    file.write_text("num_prefill_tokens,num_decode_tokens\n" + "200,40\n30,60\n" * 24)
    workload = {"lengths": str(file), "requests": 48, "prompt_tokens": 192, "new_tokens": 96}
    result = specfleet.simulate(name, changes, workload=workload)
    result.save(tmp_path / "run.parquet")
    metrics, columns = set(result.metrics), set(result.targets())
    file.unlink()
    again = specfleet.read_run(tmp_path / "run.parquet")
    assert metrics - set(again.metrics) == lost
    assert columns - set(again.targets()) <= {"share_of_alone"}
    assert again.notes == result.notes


def test_each_target_is_compared_with_itself_where_it_can_be_alone() -> None:
    long = {"workload.requests": 240, "measure.warm_up_share": 0.1}
    alone, crowd = (specfleet.simulate("star", long, verifiers={"count": N}) for N in (1, 8))
    assert alone.targets().share_of_alone[0] == pytest.approx(1.0)
    assert (crowd.targets().share_of_alone < 0.7).all()
    assert "share_of_alone" not in specfleet.play_back(alone).targets(), "measured steps have no baseline"
    for name, more in (("eqspec", {}), ("star", {"drafters.count": 4, "verifiers.count": 2})):
        assert "share_of_alone" not in specfleet.simulate(name, SMALL | more).targets()
