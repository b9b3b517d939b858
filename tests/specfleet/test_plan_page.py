"""docs/plan.md: its commands, as they stand there, answer both questions, and the first answer's fleet runs."""

import re
import shlex
from pathlib import Path

import pytest

from specfleet.experiments.draw import read_plan
from specfleet.experiments.plan.answer import Plan
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import read_run
from specfleet.fleet.scenario.reading import read_scenario
from tests.helpers.processes import ROOT, specfleet

PAGE = (ROOT / "docs" / "plan.md").read_text()
COMMANDS = [
    shlex.split(command.replace("\\\n", " ").removeprefix("$ "))
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for command in re.split(r"\n(?=\$ )", block.strip())
]
(SHOWN,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
LIMIT_S = 500
TURNS = "depths, a drafter elsewhere pays"
NOT_ALWAYS = ("turns", "schedule")
DISAGREE = 1  # what a busy host makes of a comparison


def run(words: list[str], folder: Path) -> tuple[int, str]:
    process = specfleet(*words[1:], cwd=folder)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (0, DISAGREE), err
    return process.returncode, out


def answer(words: list[str], folder: Path, heads: str) -> Plan:
    """A command prints its question, the answer's lines and tables, and keeps a plan, a figure and a scenario."""
    status, out = run(words, folder)
    assert status == 0
    kept = folder / words[words.index("-o") + 1]
    plan = read_plan(kept / "plan.json")
    files = {path.name for path in kept.iterdir()}
    assert files >= {"cells", "plan.json", "plan.png", "chosen.toml"}
    assert len(files) == len(plan.best()) + 3
    assert out.splitlines()[1 : 1 + len(plan.lines)] == list(plan.lines)
    said = [line.partition(":")[0] for line in plan.lines]
    assert [head for head in said if head not in NOT_ALWAYS] == heads.split(", ")
    assert f"step times {plan.basis}" in out
    assert all(command in out for command in plan.commands)
    assert plan.chosen.standing == "best"
    scenario = read_scenario(kept / "chosen.toml")
    assert scenario.verifiers.count == plan.chosen.targets
    assert not plan.chosen.drafters or scenario.drafters.count == plan.chosen.drafters
    return plan


def test_the_page_has_commands_for_questions_and_answers() -> None:
    assert [words[:2] for words in COMMANDS] == [
        ["specfleet", name] for name in ("plan", "run", "compare", "plan", "plan", "plan")
    ]


@pytest.mark.slow
def test_plan_of_targets_for_one_busy_drafter(tmp_path: Path) -> None:
    """And its fleet runs on this host, with the rounds that the scenario asks for, whatever their pace."""
    plan = answer(COMMANDS[0], tmp_path, f"fleet, gives, runs, limit, carries, rounds, {TURNS}, risk")
    assert plan.rule is not None
    assert 1 < plan.chosen.targets <= plan.rule.N_max
    assert run(COMMANDS[1], tmp_path)[0] == 0
    measured = read_run(tmp_path / COMMANDS[1][COMMANDS[1].index("-o") + 1])
    assert replay(measured) == []
    _, out = run(COMMANDS[2], tmp_path)
    assert "throughput" in out
    assert "mechanism" in out


@pytest.mark.slow
def test_requests_that_come_by_themselves_which_fleet_is_cheapest(tmp_path: Path) -> None:
    plan = answer(COMMANDS[3], tmp_path, f"fleet, gives, runs, limit, rounds, {TURNS}, risk, risk")
    (goal,) = plan.goals
    assert goal.state in ("met", "at its edge")
    assert goal.value >= goal.limit == 30
    cheaper = [row for row in plan.rows if row.cost_per_hour < plan.chosen.cost_per_hour]
    assert all(row.standing.startswith(("misses", "cannot")) for row in cheaper)


@pytest.mark.slow
def test_which_device_should_draft_and_which_serves_the_target(tmp_path: Path) -> None:
    """And the page shows what the command prints."""
    plan = answer(COMMANDS[4], tmp_path, f"fleet, gives, runs, limit, carries, rounds, {TURNS}, risk")
    assert len({(row.method, row.target) for row in plan.best()}) == 2 * 3 + 2 + 2
    printed = " ".join(run(COMMANDS[4], tmp_path)[1].split())
    parts = [" ".join(part.split()) for part in SHOWN.split("\n...\n")]
    assert all(part in printed for part in parts)


@pytest.mark.slow
def test_what_to_run_on_a_budget_of_devices(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    plan = answer(COMMANDS[5], tmp_path, f"fleet, precision, gives, runs, limit, rounds, {TURNS}, risk, risk")
    assert len(plan.best()) == 4  # no speculation, a head, a small model on the targets' devices and elsewhere
    assert len(plan.commands) == 3
