"""Scenarios: what they say is what they are, and what they should not say ends in one helpful line."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fleet.errors import InputError
from fleet.policies.admit import AtMost
from fleet.policies.order import Priority
from fleet.scenario.reading import make_scenario, read_scenario
from fleet.scenario.scenario import Scenario, acceptance_of, profile_of
from specfleet import cli
from tests.helpers.marks import slow
from tests.helpers.stars import star

SHIPPED = sorted((Path(__file__).parents[2] / "experiments" / "scenarios").glob("*.toml"))

MINIMAL = """
profile = "rtx-4090"
[acceptance]
model = "geometric"
beta = 0.8
[workload]
requests = 12
new_tokens = 24
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return file


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["specfleet", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


WRONG = {
    "unknown key": ("drafters.dept=3", ["drafters.dept", "3", "allowed:", "depth"]),
    "unknown table": ("drafter.depth=3", ["drafter", "allowed:", "drafters"]),
    "wrong type": ('drafters.depth="five"', ["drafters.depth", "'five'", "int"]),
    "N < 1": ("verifiers.count=0", ["verifiers.count", "0", ">= 1"]),
    "depth < 1": ("drafters.depth=0", ["drafters.depth", "0", ">= 1"]),
    "beta above one": ("acceptance.beta=1.5", ["acceptance.beta", "1.5", "<= 1"]),
    "beta below zero": ("acceptance.beta=-0.1", ["acceptance.beta", "-0.1", ">= 0"]),
    "unknown model of acceptance": ("acceptance.model=lucky", ["acceptance.model", "lucky", "beta-geometric"]),
    "missing parameter": ("acceptance={model='beta-geometric', a=1.0}", ["acceptance", "`b`"]),
    "unknown policy": ("drafters.order=lifo", ["drafters.order", "lifo", "fifo", "priority"]),
    "missing profile": ("profile=none.json", ["none.json", "rtx-4090", "jetson-orin"]),
    "unknown device": ("drafters.device=gpu7", ["drafters.device", "gpu7", "[devices.NAME]"]),
    "unknown sharing": ("devices.gpu.sharing=love", ["devices.gpu.sharing", "love", "turns", "contended"]),
    "no key": ("verifiers.count", ["verifiers.count", "KEY=VALUE"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_ends_with_status_2_and_one_line_that_helps(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, expected = WRONG[case]
    file = written(tmp_path, MINIMAL)
    assert run_cli(monkeypatch, "simulate", str(file), "--set", change) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.strip()
    assert "\n" not in line
    for part in expected + ([] if case == "no key" else [str(file)]):
        assert part in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["simulate", "nowhere.toml"], "nowhere.toml: cannot be read (No such file or directory)"),
        (["simulate"], "Missing argument"),
        (["simulate", "x.toml", "--no-such-option"], "No such option"),
        (["reproduce", "starsd-table9"], "starsd-table1"),
        (["figure", "cubism", "x", "-o", "y"], "cubism: unknown; allowed:"),
        (["compare", "a.parquet", "b.parquet"], "a.parquet: no run can be read from it"),
    ],
)
def test_wrong_commands_end_with_status_2_and_one_line(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, *arguments) == 2
    line = capsys.readouterr().err.strip()
    assert expected in line
    assert "\n" not in line


def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.toml: not TOML: .*line 1"):
        read_scenario(written(tmp_path, "count = = 3"))


def test_a_missing_model_folder_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    file = written(tmp_path, MINIMAL)
    assert run_cli(monkeypatch, "run", str(file), "--set", "drafters.model=no/such/model") == 2
    line = capsys.readouterr().err.strip()
    assert "no/such/model" in line
    assert "\n" not in line


def test_a_scenario_without_profile_or_acceptance_says_which_is_missing() -> None:
    with pytest.raises(InputError, match="profile is missing"):
        profile_of(make_scenario({}))
    with pytest.raises(InputError, match="acceptance is missing"):
        acceptance_of(make_scenario({"profile": {"name": "p", "draft": {}, "verify": {}}}))


def test_changes_on_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, MINIMAL)
    changed = read_scenario(file, ["workload.requests=3", "drafters.order=priority", "verifiers.priorities=[1, 2]"])
    assert changed.workload.requests == 3
    assert changed.drafters.order == Priority()
    assert changed.verifiers.priorities == (1, 2)


def test_a_policy_is_a_bare_name_or_a_table() -> None:
    assert make_scenario({"drafters": {"admit": {"policy": "at-most", "sessions": 4}}}).drafters.admit == AtMost(4)
    assert make_scenario({"drafters": {"order": "priority"}}).drafters.order == Priority()


def test_a_profile_is_found_beside_its_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"name": "mine", "draft": {"base_s": 1}, "verify": {"base_s": 2}}')
    scenario = read_scenario(written(tmp_path, 'profile = "mine.json"'))
    assert profile_of(scenario).verify.base_s == 2


def test_a_profile_that_does_not_parse_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"name": "mine", "draft": {"base": 1}, "verify": {}}')
    with pytest.raises(InputError, match=r"mine\.toml: .*mine\.json.*`base`"):
        read_scenario(written(tmp_path, 'profile = "mine.json"'))


LONG = ("amusd", "dsde", "exspec", "goodspeed", "m-for-n")  # to simulate


@pytest.mark.parametrize(
    "file", [slow(file) if file.stem in LONG else file for file in SHIPPED], ids=lambda file: file.stem
)
def test_shipped_scenarios_run_in_the_simulator(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "simulate", str(file), "--json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["metrics"]["throughput"]["value"] > 0


def test_a_scenario_survives_its_own_json() -> None:
    scenario = star(devices={"host": {"sharing": "turns"}}, drafters={"device": "host"})
    again = msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)
    assert again == scenario
    assert again.digest() == scenario.digest()


@pytest.mark.slow
def test_simulation_needs_no_torch(tmp_path: Path) -> None:
    """The card promises that simulation alone installs without the engine's packages."""
    program = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "zmq", "tokenizers", "safetensors"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["specfleet", "simulate", sys.argv[1]]
from specfleet.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(written(tmp_path, MINIMAL))],
        check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "throughput" in done.stdout
