"""What commands write: places are tried before anything runs, and what cannot be written loses no result."""

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pandas as pd
import pytest

import specfleet as api
from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.records.run import read_run
from specfleet.fleet.times.profile import read_profile
from specfleet.sim.run import simulate
from tests.helpers.cli import Say, all_commands, all_functions
from tests.helpers.marks import slow
from tests.helpers.processes import ended, specfleet
from tests.helpers.stars import star

COMMANDS, FUNCTIONS = all_commands(), all_functions()
# Options that name what is read.
READ = {"--of", "--profile", "--trace", "--scenario", "--key", "--allowed", "--operators"}
SMALL = ["--set", "workload.requests=12", "--set", "workload.new_tokens=24"]


def of_paths() -> list[tuple[str, Any]]:
    """Every option of every command that names a file or a folder, as the command line defines them."""
    found = []
    for name, command in COMMANDS.items():
        hints = get_type_hints(FUNCTIONS[name])
        for param in command.params:
            takes = hints.get(param.name)
            if param.param_type_name == "option" and (takes is Path or Path in get_args(takes)):
                found.append((name, param))
    return found


WRITERS = [(name, param) for name, param in of_paths() if not READ & set(param.opts)]


def test_every_path_option_is_classified_as_read_or_written() -> None:
    assert {option for _, param in of_paths() for option in param.opts} >= READ
    assert {name for name, _ in WRITERS} == {
        "simulate", "run", "sweep", "calibrate", "demo", "figure", "node", "join", "keys",
        "init", "profile estimate", "import", "plan", "report", "explore", "reproduce",
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_and_option_says_what_it_is(command: str) -> None:
    assert COMMANDS[command].help
    assert [param.name for param in COMMANDS[command].params if not param.help] == []


@pytest.mark.parametrize(("name", "option"), [(name, param.opts[0]) for name, param in WRITERS])
def test_an_unwritable_place_is_refused_before_anything_runs(name: str, option: str, tmp_path: Path, say: Say) -> None:
    """What else the command is given is not even read: it does not exist."""
    (tmp_path / "taken").write_text("old")
    fills_a_folder = name in {"sweep", "demo", "keys", "plan", "reproduce"}
    for place in (tmp_path / "taken" / "new", tmp_path / "taken" if fills_a_folder else tmp_path, Path("/proc/new")):
        words = [*name.split(), option, str(place)]
        for param in COMMANDS[name].params:
            if param.required and option not in param.opts:
                words += ["nothing=1"] if param.param_type_name == "argument" else [param.opts[0], "nothing=1"]
        said = say(*words)
        assert (said.status, said.out) == (2, "")
        assert said.err.startswith(f"specfleet: {place}: ")
        assert len(said.err.splitlines()) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]
    assert (tmp_path / "taken").read_text() == "old"


# Room for the check beforehand and a scenario, and for little more: the limit of a file's size stands for a full disk.
LITTLE_BYTES = 8192

FULL = {
    "simulate": (["simulate", "star", "--json", "-o", "OUT/run.parquet"], "run.parquet"),
    "sweep": (
        ["sweep", "star", "--vary", "verifiers.count=1,2", "--seeds", "2", "--jobs", "1", "-o", "OUT"],
        "cells/verifiers.count=1.json",
    ),
}


@pytest.mark.parametrize("case", ["simulate", slow("sweep")])
def test_a_full_disk_leaves_the_old_file_and_the_result(case: str, tmp_path: Path) -> None:
    words, file = FULL[case]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("old")
    words = [word.replace("OUT", str(tmp_path)) for word in words]
    status, out, err = ended(specfleet(*words, largest_file_bytes=LITTLE_BYTES))
    assert status == 1, err
    assert f"{tmp_path}" in err.splitlines()[-1]
    assert "cannot be written (File too large)" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert (tmp_path / file).read_text() == "old"
    assert not list(tmp_path.rglob("*.part"))
    if case == "simulate":
        assert json.loads(out)["metrics"]["throughput"]["value"] > 0
    else:
        assert "verifiers.count=1" in out


def test_a_calibration_that_cannot_be_written_is_printed(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    profile = read_profile("rtx-4090", Path())
    monkeypatch.setattr("specfleet.calibration.run.calibrate", lambda *_: profile)
    status, out, err = say("calibrate", "--json", "-o", "/dev/full")
    assert msgspec.json.decode(out, type=type(profile)) == profile
    assert (status, err.splitlines()[1:]) == (1, ["specfleet: /dev/full: cannot be written (No space left on device)"])


@pytest.mark.parametrize("option", ["-o", "--signals"])
def test_an_unwritable_engine_run_is_printed(
    option: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from specfleet.engine.launch.serve import EngineRun

    monkeypatch.setattr("specfleet.engine.launch.serve.serve", lambda *_, **__: EngineRun(simulate(star()), {}))
    kept = {"-o": "--signals", "--signals": "-o"}[option]
    said = say("run", "serving", "--json", option, "/dev/full", kept, tmp_path / "kept")
    assert said.status == 1
    assert json.loads(said.out)["metrics"]["throughput"]["value"] > 0
    assert said.err.splitlines()[-1] == "specfleet: /dev/full: cannot be written (No space left on device)"
    assert (tmp_path / "kept").exists(), "the other file is written"


# From Python.


def test_an_unsaved_result_is_one_line(tmp_path: Path) -> None:
    result = api.simulate("star", workload={"requests": 12})
    for place in (tmp_path, Path("."), "/proc/new", "/dev/full"):
        with pytest.raises(OutputError, match=f"^{place}: cannot be written"):
            result.save(place)
    result.save(tmp_path / "run.parquet")
    assert read_run(tmp_path / "run.parquet").digest() == result.run.digest()


def test_a_figure_says_which_file_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no LaTeX
    result = api.simulate("star", workload={"requests": 12})
    for place, said in (
        (tmp_path / "picture", r"picture: the ending says the format; write \S+picture.png, for example; allowed:"),
        (tmp_path / "picture.jpe", "figures have no format '.jpe'; allowed:"),
        (tmp_path / "picture.pgf", "pgf needs xelatex, and it is not installed; write .pdf"),
        (tmp_path, "is a folder; name a file in it"),
        (Path("/proc/new.png"), "cannot be written"),
    ):
        with pytest.raises(InputError, match=said):
            result.figure(out=place)
    for ending in ("png", "svg", "pdf", "SVG"):
        result.figure(out=tmp_path / "new" / f"picture.{ending}")
        assert (tmp_path / "new" / f"picture.{ending}").stat().st_size > 1000


def test_what_was_computed_comes_with_the_error(tmp_path: Path) -> None:
    """A folder takes the name of the second cell's file while the first one runs; nothing else is in its way."""
    vary = {"verifiers.count": [1, 2, 4]}
    small = {"workload.requests": 12}
    taken = tmp_path / "cells" / "verifiers.count=2.json"
    with pytest.raises(
        OutputError, match=r"verifiers.count=2.json: cannot be written \(a folder is in its place\)"
    ) as raised:
        api.sweep("star", vary, small, out=tmp_path, seeds=1, jobs=1, done=lambda _: taken.mkdir())
    assert list(raised.value.result.frame()["verifiers.count"]) == [1, 2]
    assert (tmp_path / "cells" / "verifiers.count=1.json").is_file()


# The command as such.


def test_the_version_is_that_of_the_package(say: Say) -> None:
    assert say("--version") == (0, f"specfleet {api.__version__}\n", "")


def test_a_shell_completes_commands(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_SPECFLEET_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "specfleet sim")
    monkeypatch.setenv("COMP_CWORD", "1")
    status, out, _ = say()
    assert (status, out.split()) == (0, ["simulate"])


def test_an_interval_without_width_is_none_in_json_and_csv(tmp_path: Path, say: Say) -> None:
    """Every round of rows of one length is ungrouped; the load of the drafts varies."""
    said = json.loads(say("simulate", "eqspec", "--json").out)["metrics"]
    assert (said["grouped_share"]["low"], said["grouped_share"]["high"]) == (None, None)
    assert said["load"]["low"] < said["load"]["value"] < said["load"]["high"]
    say("sweep", "eqspec", "--vary", "drafters.depth=4:4", "-o", tmp_path, "--seeds", "2")
    table = pd.read_csv(tmp_path / "sweep.csv").set_index("quantity")
    assert table.loc["grouped_share", ["low", "high"]].isna().all()
    assert table.loc["load", "low"] < table.loc["load", "high"]
