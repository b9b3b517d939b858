"""Notes name what a scenario's author may not mean, with the numbers; an ordinary scenario has none."""

import re
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.experiments.notes import notes_of
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from tests.helpers.cli import Say

PRINTED = [0.82, 0.68, 0.55, 0.43, 0.36]
PROFILE = {
    "name": "p", "draft": {"base_s": 0.01}, "verify": {"base_s": 0.04}, "decode": {"base_s": 0.03},
    "verify_prefill": {"base_s": 0.05},
}  # fmt: skip


def scenario(**tables: Any) -> Any:
    return make_scenario({"profile": PROFILE, "acceptance": {"model": "geometric", "beta": 0.8}} | tables)


def positions(**values: list[Any]) -> dict[str, Any]:
    return {"acceptance": {"model": "per-position"} | values}


@pytest.mark.parametrize("name", shipped_files("scenarios"))
def test_no_shipped_scenario_has_a_note(name: str) -> None:
    assert notes_of(specfleet.scenario_of(name)) == ()


MEASURED = PROFILE | {"acceptance": {"model": "recorded", "depth": 5, "sessions": [[5, 5, 4], [5, 3]]}}
STATED = {"model": "geometric", "beta": 0.75}


@pytest.mark.parametrize("world", ["sim", "engine"])
def test_a_replaced_acceptance_is_noted_in_both_worlds(world: Any) -> None:
    (note,) = notes_of(scenario(profile=MEASURED, acceptance=STATED), world)
    assert "geometric with beta = 0.75: 2.29 accepted tokens a verification" in note
    assert "profile p measured, recorded in 2 sessions: 4.40 accepted tokens a verification" in note


@pytest.mark.parametrize("model", [{"model": "agreement", "sessions": ["11"], "unknown": 0.5}, PRINTED[:3]])
def test_a_replacement_without_a_mean_is_noted(model: Any) -> None:
    table = model if isinstance(model, dict) else {"model": "per-position", "survival": model}
    (note,) = notes_of(scenario(profile=MEASURED, acceptance=table))
    assert f"the scenario's, {table['model']}, and replaces" in note


@pytest.mark.parametrize(
    "tables",
    [
        positions(survival=PRINTED),
        positions(histogram=[5, 4, 3, 2, 1, 0]),
        {"profile": MEASURED, "acceptance": None},
        {"profile": PROFILE | {"acceptance": STATED}, "acceptance": {"model": "geometric", "beta": 0.5}},
        {"profile": MEASURED, "acceptance": MEASURED["acceptance"]},
        {
            "profile": MEASURED,
            "verifiers": {"allocate": "dsde"},
            "acceptance": {"model": "synthetic-signals", "acceptance": 0.8},
        },
    ],
)
def test_acceptance_that_replaces_none_has_no_note(tables: dict[str, Any]) -> None:
    assert notes_of(scenario(**tables)) == ()


def test_a_missing_decode_time_is_noted() -> None:
    without = scenario(profile={name: PROFILE[name] for name in ("name", "draft", "verify")})
    assert specfleet.analytic(without).N_max == 0
    assert any("decode is not given" in note for note in specfleet.analytic(without).notes)
    assert specfleet.analytic(scenario()).notes == ()


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"drafters": {"order": {"policy": "weighted", "weights": [4, 1]}}}, "'weighted' serves targets unequally"),
        ({"drafters": {"order": "priority"}, "verifiers": {"count": 2, "priorities": [1]}}, "'priority' serves"),
        ({"profile": PROFILE | {"idle": {"gaps_s": [0, 0.1], "slowdowns": [1, 2]}}}, "up to 1.4 times as long"),
    ],
)
def test_what_no_equation_knows_is_noted(tables: dict[str, Any], words: str) -> None:
    (note,) = specfleet.analytic(scenario(**tables)).notes
    assert words in note


def test_a_baseline_without_the_time_of_its_steps_is_noted() -> None:
    """Profiles of aligned rows have no plain step: it would take no time."""
    untimed = {"profile": PROFILE | {"decode": {}}, "drafters": {"count": 0}}
    assert [note[:40] for note in notes_of(scenario(**untimed))] == ["a plain decoding step takes no time here"]
    assert notes_of(scenario(drafters={"count": 0})) == ()


@pytest.mark.parametrize(
    ("tables", "kinds"),
    [
        ({"drafters": {"count": 0}, "workload": {"streams": 64}}, ["decode"]),
        ({"workload": {"arrivals": {"process": "poisson", "per_s": 1.0}}}, ["verify"]),
        ({"workload": {"streams": 64}, "verifiers": {"max_num_seqs": 1}}, []),
        ({"workload": {"streams": 4}, "verifiers": {"count": 4}}, []),
        ({"workload": {"streams": 64}, "profile": PROFILE | {"verify": {"per_row_token_s": 0.01}}}, []),
        ({"workload": {"streams": 64}, "profile": PROFILE | {"verify": {"base_s": 0.04, "per_row_s": 0.01}}}, []),
    ],
)
def test_free_rows_are_noted(tables: dict[str, Any], kinds: list[str]) -> None:
    noted = [note for note in notes_of(scenario(**tables)) if "drafters.group" not in note]
    assert [note.partition(" takes no longer for several")[0] for note in noted] == kinds


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    "workload",
    [
        {"shared": {"share": 0.7}}, {"shared": {"tokens": 64}}, {"conversations": {}},
        {"lengths": "rows.csv", "id_tokens": 16}, {"arrivals": {"process": "trace", "file": "rows", "id_tokens": 16}},
    ],
)  # fmt: skip
def test_texts_that_share_without_a_cache_are_noted(workload: dict[str, Any], cached: bool) -> None:
    noted = notes_of(scenario(workload=workload, verifiers={"prefix_cache": cached}))
    assert [note for note in noted if "nothing keeps what texts share" in note] == ([] if cached else [noted[-1]])


@pytest.mark.parametrize(
    ("keys", "noted"),
    [
        ({"workload.streams": 32, "verifiers.max_num_seqs": 32}, True),
        ({"workload.streams": 32, "verifiers.max_num_seqs": 32, "drafters.group": "batch"}, False),
        ({"workload.streams": 32}, False),  # targets decode one after the other, as the paper's
        ({"verifiers.max_num_seqs": 32}, False),
    ],
)
def test_a_drafter_that_drafts_row_by_row_is_noted(keys: dict[str, Any], noted: bool) -> None:
    notes = notes_of(scenario_of("star", keys))
    assert any("drafts one by one" in note for note in notes) == noted


def test_results_carry_their_notes() -> None:
    noted = scenario(workload={"lengths": "sharegpt"})
    result = specfleet.simulate(noted, workload={"requests": 8})
    assert result.notes == specfleet.analytic(noted).notes == notes_of(noted) != ()
    assert "notes" not in set(specfleet.analytic(noted).frame().quantity)
    assert "prefill left out" in specfleet.analytic(noted).line()


def test_the_command_says_what_the_equations_omit(say: Say) -> None:
    noted = ["star", "--set", "workload.lengths=sharegpt"]
    for command in (["analytic", *noted], ["simulate", *noted, "--set", "workload.requests=64"]):
        printed = say(*command)
        assert re.search(r"mean acceptance length: \d\.\d\d tokens a verification with the bonus token", printed.out)
        assert "vLLM" in printed.out
        assert printed.err.startswith("note: workload.lengths = 'sharegpt'")
        assert bool(re.search(r"prefill\W+left out", printed.out)) == (command[0] == "analytic")


@pytest.mark.parametrize(
    ("keys", "omitted", "kept"),
    [
        ({}, ["leave out prefill, up to", "idle gaps, after which a draft takes up to 1.65 times"], []),
        ({"profile.draft": "45ms"}, ["leave out prefill, up to"], ["idle gaps"]),
        ({"profile.draft": "45ms", "workload.prompt_tokens": 1}, ["equations"], ["idle gaps"]),
        ({"drafters.group": "batch"}, [], ["equations"]),
    ],
)
def test_captions_say_what_the_equations_omit(keys: dict[str, Any], omitted: list[str], kept: list[str]) -> None:
    swept = specfleet.sweep("star", {"verifiers.count": [1, 2]}, {"workload.requests": 8} | keys, seeds=1, jobs=1)
    said = " ".join(" ".join(text.get_text() for text in swept.figure().texts).split())
    assert [part for part in omitted if part not in said] == [part for part in kept if part in said] == []
    assert any("after an idle gap take up to" in note for note in swept.notes) == ("idle gaps" in said)


def test_targets_without_a_request_are_noted_and_are_no_star() -> None:
    keys = {"workload.requests": 3, "profile.idle.slowdowns": [1.0]}
    swept = specfleet.sweep("star", {"verifiers.count": [2, 4]}, keys, seeds=1, jobs=1)
    assert [note.partition(":")[0] for note in swept.notes] == ["workload.requests = 3"]
    assert [bool(cell.analytic) for cell in swept.cells] == [True, False]


@pytest.mark.parametrize(("requests", "noted"), [({}, ["64 of 70 rows of"]), ({"requests": 60}, [])])
def test_rows_of_a_trace_that_nothing_asked_to_leave_out_are_noted(
    requests: dict[str, int], noted: list[str], tmp_path: Path
) -> None:
    rows = "\n".join(f"{number},10,20" for number in range(70))
    (tmp_path / "trace.csv").write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    arrivals = {"process": "trace", "file": str(tmp_path / "trace.csv")}
    notes = notes_of(scenario(workload={"arrivals": arrivals} | requests))
    assert [note[:16] for note in notes if "rows of" in note] == noted
