"""The command line as users meet it: what it prints, and the line and status that wrong input ends with."""

import json
from pathlib import Path

import pytest

import specfleet
from specfleet.experiments.console.printing import print_table
from specfleet.fleet.records.run import write_run
from specfleet.sim.fast import choice
from specfleet.sim.run import simulate
from tests.helpers.cli import Say, all_commands
from tests.helpers.stars import star

LONG = (
    "init LONG", "explain LONG", "show LONG", "reproduce LONG", "figure LONG x -o x.png",
    "figure timeline LONG -o x.png",
)  # fmt: skip
KEYS = ("--key", "a.secret", "--server-key")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["simulate", "nowhere.toml"], "nowhere.toml: cannot be read (No such file or directory)"),
        (["analytic", "nowhere"], "no shipped scenario has that name; shipped: amusd, "),
        (["sweep", "star", "--vary", "drafters.dept=1:3", "-o", "x"], "unknown key drafters.dept = 1; nearest: depth,"),
        (["simulate"], "name a SCENARIO, or a run with --of RUN"),
        (["simulate", "star", "--seed", "1", "--seed=2"], "--seed: stands twice; give it once"),
        (["plan", "--in-flight", "2", "--in-flight", "x"], "--in-flight 2,x: write whole numbers"),
        (["analytic"], "Missing argument"),
        (["simulate", "x.toml", "--no-such-option"], "No such option"),
        (["reproduce", "starsd-table9"], "starsd-table1"),
        (["figure", "cubism", "x", "-o", "y"], "cubism: unknown; allowed:"),
        (["compare", "a.parquet", "b.parquet"], "a.parquet: cannot be read (No such file"),
        (["simulate", "star", "--of", "run.parquet"], "--of run.parquet brings its own scenario; leave out star"),
        (["simulate", "star", "--play-back", "all"], "--play-back needs --of RUN"),
        (["simulate", "--of", "run.parquet", "--path", "fast"], "leave out --path"),
        (["simulate", "--of", "nowhere.parquet"], "nowhere.parquet: cannot be read"),
        (["profile", "estimate"], "--target"),
        (["profile", "estimate", "--target", "llama-3.1-8b@h100", "--engine", "steam"], "'steam': does not ship"),
        (["node", "drafter", "star", "--at", "0.0.0.0:5555"], "0.0.0.0:5555: strangers can reach a port, so it needs"),
        (["node", "target", "star", "--connect", "192.0.2.7:5555"], "192.0.2.7:5555: strangers can reach a port, so"),
        (["node", "drafter", "star", "--key", "a.secret"], "--key and --allowed belong together"),
        (["node", "target", "star", "--server-key", "a.public"], "--key and --server-key belong together"),
        (["node", "target", "star", "--connect", "a:1", *KEYS, "a.public"], "a.public: cannot be read (No such file"),
        (["node", "router", "m-for-n", "--connect", "a:5555,b:1"], "a:5555: strangers can reach a port, so it needs"),
        (
            ["node", "router", "m-for-n", "--connect", "a:1", *KEYS[:2]],
            "--key, --allowed and --server-key belong together",
        ),
        (["node", "target", "star", "--connect", "a:1", *KEYS, "a.public,b.public"], "b.public: 2 keys for 1"),
        (["node", "target", "star", *KEYS, "a.public"], "--server-key a.public: needs --connect"),
        (["node", "drafter", "star", "--connect", "a:1"], "--connect a:1: has no effect on a drafter; leave it out"),
        (["node", "target", "star", "--at", "./here"], "--at ./here: has no effect on a target; leave it out"),
        (["node", "drafter", "star", "--number", "2"], "--number 2: the scenario has drafters.count = 1"),
        (
            ["simulate", "star", "--set", "drafters.depth=0"],
            "drafters.depth = 0: expected `int` >= 1; drafters.count = 0",
        ),
        (["keys", "a/b"], "key 'a/b': allowed are 1 to 64 letters"),
        (["run", "star", "--set", "drafters.model=no/such/model"], "no/such/model"),
        *((words.replace("LONG", "a" * 10_000).split(), "aaa") for words in LONG),
    ],
)
def test_wrong_commands_end_with_status_2_and_one_line(arguments: list[str], expected: str, say: Say) -> None:
    if arguments[0] in ("node", "keys", "run"):
        pytest.importorskip("torch")
    status, out, err = say(*arguments)
    assert expected in err
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert len(err) < 1000


def test_a_failed_cell_loses_no_other_cell(say: Say, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # Acceptance was recorded at depth 5: nothing is known of depth 9.
    recorded = "acceptance={model = 'recorded', depth = 5, sessions = [[1, 5, 2], [0, 3]]}"
    options = ["--set", recorded, "--set", "workload.requests=12", "--vary", "drafters.depth=2,9"]
    status, _, err = say("sweep", "star", "-o", out, *options, "--seeds", "1", "--jobs", "1")
    assert status == 1
    assert "1 of 2 cells failed" in err
    errors = [json.loads(path.read_text())["error"] for path in sorted((out / "cells").glob("*.json"))]
    assert [bool(error) for error in errors] == [False, True]


def test_compare_ends_with_status_1_beyond_its_tolerance(say: Say, tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast.parquet", tmp_path / "slow.parquet"
    write_run(simulate(star()), fast)
    write_run(simulate(star(profile={"draft": {"base_s": 2.0}})), slow)
    equal, apart = say("compare", fast, fast, "--json"), say("compare", fast, slow, "--tolerance", "0.05")
    assert (equal.status, json.loads(equal.out)["mape"]["rounds_per_s"]) == (0, 0)
    assert apart.status == 1
    assert "off by more than 5.0%" in apart.err


@pytest.mark.slow
def test_a_complete_playback_prints_the_measured_values(say: Say, tmp_path: Path) -> None:
    write_run(simulate(star()), tmp_path / "run.parquet")
    printed = []
    for more in (["--play-back", "all", "--set", "seed=5"], []):  # constant times: steps and acceptance are all of it
        said = say("simulate", "--of", tmp_path / "run.parquet", *more, "--json")
        printed.append(json.loads(said.out)["metrics"]["throughput"]["value"])
    assert printed[0] == pytest.approx(printed[1])


def test_targets_have_a_row_each(say: Say) -> None:
    changes = ["--set", "verifiers.count=3", "--set", "workload.requests=12"]
    printed = say("simulate", "star", *changes, "--by", "target").out
    assert all(heading in printed for heading in ("share of N = 1", "TTFT, s", "TPOT P99, s", "wait, s"))
    assert [line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│")] == ["1", "2", "3"]


def test_the_equations_begin_with_N_full_and_have_units(say: Say) -> None:
    printed = say("analytic", "star").out
    rows = [[part.strip() for part in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]
    assert [row[0] for row in rows[:3]] == ["N_full", "N_max", "regime"]
    units = {row[0]: row[3] for row in rows}
    assert units["S_s"] == "s"
    assert units["throughput.with_bonus"] == "tokens/s"
    assert all(unit for name, unit in units.items() if name != "regime")
    assert "None" not in printed


def test_a_plan_refuses_stations_of_a_scenario_that_it_cannot_keep(say: Say, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[devices.shared]\nsharing = 'turns'\n[drafters]\ndevice = 'shared'\n")
    said = say("plan", tmp_path / "mine.toml", "--target", "llama-3.2-1b@l4", "--in-flight", "1")
    assert said.status == 2
    assert "drafters.device: a plan places drafters and targets itself; leave it out" in said.err


def test_a_plan_has_all_lengths_of_a_file(say: Say, tmp_path: Path) -> None:
    rows = ["num_prefill_tokens,num_decode_tokens", *["8,4"] * 100, *["24,12"] * 100]
    (tmp_path / "texts.csv").write_text("\n".join(rows))
    (tmp_path / "mine.toml").write_text("workload.lengths = 'texts.csv'\n")
    said = say("plan", tmp_path / "mine.toml", "--target", "llama-3.2-1b@l4", "--in-flight", "1")
    assert said.out.startswith("llama-3.2-1b@l4, 1 in flight at each target: prompts of 16 tokens, answers of about 8")


def test_a_narrow_table_keeps_every_character(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specfleet.experiments.console.printing.PIPED_WIDTH", 24)
    print_table("cells", ("cell", "value"), [("verifiers.count=12345", "1")])
    out = capsys.readouterr().out
    assert "…" not in out
    assert "45" in out


def test_tables_print_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("fits [ms]", ("quantity", "value"), [("verify", "1 k + 2 [r] ms")])
    printed = capsys.readouterr().out
    assert "fits [ms]" in printed
    assert "1 k + 2 [r] ms" in printed


NAME = "a\u001b]0;owned\u0007\u001b[2J\u202eb"
WORDS = (
    "show FILE", "simulate --of RUN", "simulate --of RUN --all", "simulate --of RUN --json", "compare RUN RUN",
    "sweep star --vary verifiers.count=1,2 --set workload.requests=9 --seeds 1 --jobs 1 -o OUT",
)  # fmt: skip


def test_no_name_commands_the_terminal(tmp_path: Path, say: Say) -> None:
    (tmp_path / "own.toml").write_text(f"name = {json.dumps(NAME)}\n[workload]\nrequests = 9\n")
    write_run(simulate(star(name=NAME, workload={"requests": 9})), tmp_path / "run.parquet")
    places = {"FILE": "own.toml", "OUT": NAME, "RUN": "run.parquet"}
    for words in WORDS:
        _, out, err = say(*(tmp_path / places[word] if word in places else word for word in words.split()))
        assert all(line.isprintable() for line in f"{out}{err}".split("\n")), words
        shown = "".join(f"{out}{err}".split())  # a narrow table folds it
        assert "a\\x1b]0;owned\\x07\\x1b[2J\\u202eb" in shown or "a\\u001b]0" in shown, words


def test_long_values_do_not_make_long_errors(say: Say) -> None:
    big = ("--set", "workload.new_tokens=100000000")
    for key in ("name", "workload.lengths", "drafters.device"):
        status, out, err = say("simulate", "star", "--set", f"{key}={'n' * 100_000}", *big)
        assert (status, out, len(err) < 2000) == (2, "", True), key


def test_the_help_shows_every_command_in_a_panel(say: Say) -> None:
    status, out, _ = say("--help")
    assert (status, out) == say()[:2]
    panels = [line[:-1] for line in out.splitlines() if line.endswith(":")]
    assert panels[1:] == ["Plan and simulate", "Measure", "Results", "Other"]
    listed = {line.split()[0] for line in out.partition("Plan and simulate:")[2].splitlines() if line.startswith("  ")}
    assert listed == {name.split()[0] for name in all_commands()}


def test_requests_in_flight_that_stay_are_said(say: Say) -> None:
    err = say("simulate", "serving", "--set", "verifiers.count=2", "--set", "workload.requests=32").err
    assert "note: workload.streams = 96 requests in flight stay: 48 at each of 2 targets" in err


def test_the_options_of_plan_are_in_panels(say: Say) -> None:
    _, out, _ = say("plan", "--help")
    panels = [line[:-1] for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert panels == ["Arguments", "Models and devices", "Load", "Goals and costs", "Search and output", "Options"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ([], "simpy, for the compiled loop is loaded from"),
        (["--set", "verifiers.patience_s=9"], "simpy, for the compiled loop does not know verifiers.patience_s = 9.0"),
    ],
)
def test_a_verbose_simulation_names_its_path_and_the_reason(
    changes: list[str], path: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(choice.spent, "tokens", 0.0)  # as in a fresh process
    assert f"path: {path}" in say("simulate", "star", "--set", "workload.requests=9", *changes, "-v").err


def test_a_seed_is_a_key_and_results_have_plain_content(say: Say, tmp_path: Path) -> None:
    small = ("star", "--seed", "7", "--set", "workload.requests=20")
    assert json.loads(say("simulate", *small, "--json").out)["seed"] == 7
    swept = say("sweep", *small, "--vary", "verifiers.count=1,2", "-o", tmp_path, "--json", "--jobs", "1")
    cells = json.loads(swept.out)["cells"]
    assert [cell["cell"] for cell in cells] == [{"verifiers.count": 1}, {"verifiers.count": 2}]
    assert cells[0]["metrics"]["throughput"]["unit"] == "tokens/s"
    again = specfleet.sweep("star", {"verifiers.count": [1, 2]}, {"seed": 7, "workload.requests": 20}, jobs=1)
    assert json.loads(json.dumps(again.to_dict(), allow_nan=False)) == json.loads(swept.out)


def test_short_options_say_help_and_version(say: Say) -> None:
    assert say("-V").out == say("--version").out
    assert say("sweep", "-h").out == say("sweep", "--help").out
