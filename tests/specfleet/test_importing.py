"""`specfleet import`: a scenario that simulates at once, says where its numbers come from, and reads back."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.fleet.acceptance.models import committed_closed_form
from specfleet.fleet.policies.shapes import CHAIN
from tests.helpers import engines, loads
from tests.helpers.cli import Say
from tests.inputs.reader_kinds import READER_KINDS

SESSIONS = [[(4, 4), (4, 1), (4, 0)], [(4, 2)]]


def answers(folder: Path, detail: str = "summary") -> Path:
    stats = [engines.vllm_answer(engines.vllm_stats(session, 4, detail)) for session in SESSIONS]
    return engines.write_lines(folder / "answers.jsonl", stats)


def recorded(name: str, folder: Path) -> tuple[str, Path]:
    """Write a good file of a kind; return its format and place."""
    READER_KINDS[name].write(folder)
    _, kind, file, *_ = READER_KINDS[name].commands[0]
    return kind, folder / file


@pytest.mark.parametrize("name", READER_KINDS)
def test_what_is_imported_simulates_at_once_to_the_recorded_mean(name: str, tmp_path: Path) -> None:
    out = tmp_path / "mine" / "made.toml"
    kind, file = recorded(name, tmp_path)
    in_flight = 4 if "--in-flight" in READER_KINDS[name].commands[0] else None
    made = specfleet.import_record(kind, file, out, draft_ms=2, verify_ms=25, in_flight=in_flight)
    assert (made.modelled or 1) == pytest.approx(made.mean_acceptance_length, abs=2e-3)
    assert made.scenario == specfleet.scenario_of(out)
    assert {path.name for path in made.files} == {path.name for path in out.parent.iterdir()}
    result = specfleet.simulate(out, workload={"requests": made.scenario.workload.requests})
    assert result.metrics["throughput"].value > 0
    text = out.read_text()
    assert f"# Written by `specfleet import {kind}`" in text
    assert (f"{made.mean_acceptance_length:.4f} with the bonus token" in text) == (made.rounds > 0)
    further = re.search(r'"geometric", beta = ([\d.]+)\}', " ".join(text.replace("#", "").split()))
    assert (further is not None) == (made.rounds > 0)
    if further is not None and made.scenario.drafters.shape == CHAIN:
        tokens = committed_closed_form(float(further[1]), made.scenario.drafters.depth)
        assert tokens == pytest.approx(made.mean_acceptance_length, rel=0.005)
    assert "stated" in tomllib.loads(text)["profile"]["sources"]["draft"]


def test_a_simulated_round_has_the_stated_times(tmp_path: Path) -> None:
    out = tmp_path / "made.toml"
    made = specfleet.import_record(*recorded("vLLM's answers", tmp_path), out, draft_ms=2, verify_ms=25)
    drafts = specfleet.simulate(out).run.frame().query("event == 'done'")
    assert drafts[drafts.kind == "draft"].duration_s.unique() == pytest.approx([made.scenario.drafters.depth * 0.002])
    assert drafts[drafts.kind == "verify"].duration_s.unique() == pytest.approx([0.025])


def test_lengths_are_played_request_by_request(tmp_path: Path) -> None:
    out = tmp_path / "made.toml"
    specfleet.import_record("vllm", answers(tmp_path), out, draft_ms=2, verify_ms=25)
    assert (tmp_path / "made-lengths.csv").read_text().splitlines()[1:] == ["20,9", "20,4"]
    joins = specfleet.simulate(out).run.frame().query("event == 'join' and station == 'verifier.1'")
    assert joins.goal.tolist() == [29, 24]


def test_times_come_from_a_profile_name_or_file(tmp_path: Path) -> None:
    made = specfleet.import_record("vllm", answers(tmp_path), tmp_path / "a.toml", profile="a100")
    assert made.scenario.profile == specfleet.scenario_of("star", profile="a100").profile
    (tmp_path / "mine.json").write_text(json.dumps({"name": "mine", "draft": {"base_s": 0.1}, "verify": {"base_s": 1}}))
    specfleet.import_record("vllm", answers(tmp_path), tmp_path / "b.toml", profile=tmp_path / "mine.json")
    assert 'profile = "mine.json"' in (tmp_path / "b.toml").read_text()


def test_a_scenario_without_times_takes_a_profile_later(tmp_path: Path) -> None:
    made = specfleet.import_record("vllm", answers(tmp_path, "detailed"), tmp_path / "made.toml")
    assert "--draft-ms" in made.notes[-1]
    with pytest.raises(specfleet.InputError, match="profile is missing"):
        specfleet.simulate(tmp_path / "made.toml")
    assert specfleet.simulate(tmp_path / "made.toml", profile="a100").metrics["throughput"].value > 0


def test_only_depths_up_to_the_recorded_are_accepted(tmp_path: Path) -> None:
    made = specfleet.import_record("vllm", answers(tmp_path), tmp_path / "made.toml", depth=2)
    assert made.scenario.drafters.depth == 2
    assert made.modelled == pytest.approx(1 + (2 + 1 + 0 + 2) / 4)
    with pytest.raises(specfleet.InputError, match="depth = 5 goes beyond the recorded depth = 4"):
        specfleet.import_record("vllm", answers(tmp_path), tmp_path / "made.toml", depth=5)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "tgi"}, "import tgi: unknown; allowed: vllm, vllm-metrics"),
    "no files": ({"files": []}, r"files = \[\]: needs a file"),
    "one time": ({"draft_ms": 2}, "--verify-ms: needs milliseconds above 0"),
    "no time": ({"draft_ms": 2, "verify_ms": 0}, "--verify-ms 0: needs milliseconds above 0"),
    "times twice": ({"draft_ms": 2, "profile": "a100"}, "--profile has the step times"),
    "no profile": ({"profile": "nowhere"}, "no file 'nowhere'"),
    "another's option": (
        {"in_flight": 4},
        "--in-flight: import vllm does not read it; it reads --draft-ms, .*, --depth$",
    ),
    "depth": ({"depth": 0}, "depth = 0: needs a whole number from 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    arguments, says = WRONG[name]
    out = tmp_path / "made.toml"
    with pytest.raises(specfleet.InputError, match=says):
        specfleet.import_record(**{"kind": "vllm", "files": answers(tmp_path), "out": out} | arguments)
    assert not out.exists()


def test_a_file_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    file = answers(tmp_path)
    before = file.read_text()
    for out in (file, tmp_path / "answers.toml"):
        lengths = file.rename(tmp_path / "answers-lengths.csv") if out != file else file
        with pytest.raises(specfleet.InputError, match="would replace a file that is read"):
            specfleet.import_record("vllm", lengths, out)
        assert lengths.read_text() == before


def test_the_command_prints_counted_and_stated_acceptance(say: Say, tmp_path: Path) -> None:
    words = ("import", "vllm", answers(tmp_path), "-o", tmp_path / "made.toml")
    printed = say(*words, "--draft-ms", "2", "--verify-ms", "25").out
    assert "mean acceptance length, with the bonus token" in printed
    assert "2.75" in printed
    shown = json.loads(say(*words, "--json").out)
    assert (shown["rounds"], shown["accepted"], shown["mean_acceptance_length"]) == (4, 7, 2.75)


def test_the_command_holds_a_load_against_its_simulation(say: Say, tmp_path: Path) -> None:
    words = ("import", "vllm-log", tmp_path / "server.log", "-o", tmp_path / "made.toml")
    (tmp_path / "server.log").write_text(loads.log_text([4, 4, 4]))
    shown = say(*words).out
    assert "ways to the time of a round agree within" in shown
    assert re.search(r"in flight +. input +. +5 ", shown)
    assert re.search(r"tokens/s +. predicted +. +400 ", shown)
    rows = {row["quantity"]: row for row in json.loads(say(*words, "--json").out)["comparison"]["rows"]}
    assert rows["tokens/s"]["simulated"] == pytest.approx(rows["tokens/s"]["observed"], rel=0.5)


def test_the_command_names_what_answers_other_draft_lengths(say: Say, tmp_path: Path) -> None:
    out = tmp_path / "made.toml"
    for depth, options, says in (
        (3, (), f"again with --target MODEL@DEVICE --draft MODEL, then: specfleet plan {out} --in-flight 4"),
        (3, ("--target", "llama-3.1-8b@h100", "--draft", "eagle3"), f"plan {out} --in-flight 1,4,16; other methods"),
        (0, ("--target", "llama-3.1-8b@h100"), f"plan {out} --in-flight 1,4,16; other methods: add --draft eagle3"),
    ):
        (tmp_path / "server.log").write_text(loads.log_text([4, 4, 4], depth=depth))
        printed = say("import", "vllm-log", tmp_path / "server.log", "-o", out, *options)
        assert says in " ".join((printed.out + printed.err).split())


def test_a_result_shows_itself(tmp_path: Path) -> None:
    made = specfleet.import_record("vllm", answers(tmp_path), tmp_path / "made.toml")
    assert repr(made) == "<vLLM's metrics.speculative_decoding: 4 rounds, 2.750 tokens a round>"
    assert list(made.frame().columns) == ["quantity", "counted", "the file says"]
