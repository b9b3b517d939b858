"""docs/plan.md: its commands, as they stand there, answer both questions, and the first answer's fleet runs."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from specfleet.experiments.draw import read_plan
from specfleet.experiments.plan.advice import FleetPlan
from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.question import APART, COLOCATED, PLAIN
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
ANSWER = ["fleet", "gives", "limit", "instead", "next"]
LIMIT_S = 500
DISAGREE = 1  # what a busy host makes of a comparison


def run(words: list[str], folder: Path) -> tuple[int, str]:
    process = specfleet(*words[1:], cwd=folder)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (0, DISAGREE), err
    return process.returncode, out


def assert_answers(words: list[str], folder: Path) -> Plan:
    """A command prints its question, five lines and the table, and keeps a plan, a figure and a scenario."""
    status, out = run(words, folder)
    assert status == 0
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines[1:6]] == ANSWER
    assert "step times estimated" in out
    assert "judged by equations alone, approximate" in out
    kept = folder / words[words.index("-o") + 1]
    assert {path.name for path in kept.iterdir()} == {"plan.json", "pareto.png", "profile.json", "chosen.toml"}
    plan = read_plan(kept / "plan.json")
    assert lines[1:6] == list(plan.lines)
    assert plan.rows[0].standing == "chosen"
    assert {row.kind for row in plan.rows if row.method == "simulated"} == {APART, COLOCATED, PLAIN}
    scenario = read_scenario(kept / "chosen.toml")
    if plan.chosen.kind == APART:
        assert (scenario.drafters.count, scenario.verifiers.count) == (plan.chosen.drafters, plan.chosen.targets)
    else:  # one of its targets, which have nothing to do with each other
        assert (scenario.drafters.place, scenario.verifiers.count) == ("target", 1)
    return plan


def test_the_page_has_commands_for_questions_and_answers() -> None:
    assert [words[:2] for words in COMMANDS] == [
        ["specfleet", name] for name in ("plan", "run", "compare", "plan", "plan", "plan")
    ]


@pytest.mark.slow
def test_plan_of_targets_for_one_busy_drafter(tmp_path: Path) -> None:
    """And its fleet runs on this host, with the rounds that the scenario asks for, whatever their pace."""
    plan = assert_answers(COMMANDS[0], tmp_path)
    assert (plan.chosen.kind, plan.chosen.drafters) == (APART, 1)
    assert 1 < plan.chosen.targets <= plan.rule.N_max
    assert {"throughput", "cost_per_million", "tpot_p99_s"} <= set(plan.metrics)
    assert run(COMMANDS[1], tmp_path)[0] == 0
    measured = read_run(tmp_path / COMMANDS[1][COMMANDS[1].index("-o") + 1])
    assert replay(measured) == []
    _, out = run(COMMANDS[2], tmp_path)
    assert "throughput" in out
    assert "mechanism" in out


@pytest.mark.slow
def test_requests_that_come_by_themselves_which_fleet_is_cheapest(tmp_path: Path) -> None:
    plan = assert_answers(COMMANDS[3], tmp_path)
    (goal,) = plan.goals
    assert goal.state in ("met", "at its edge")
    assert goal.range.value <= goal.limit
    cheaper = [row for row in plan.rows if row.method == "simulated" and row.cost_per_hour < plan.rows[0].cost_per_hour]
    assert cheaper
    assert all(row.miss is None or row.miss > 0 for row in cheaper)


@pytest.mark.slow
def test_which_device_should_draft_and_which_serves_the_target(tmp_path: Path) -> None:
    """And the page shows what the command prints."""
    plan = assert_answers(COMMANDS[4], tmp_path)
    places = {
        (row.target_place, row.draft_place) for row in plan.rows if row.kind == APART and row.method == "simulated"
    }
    assert len(places) == 6
    printed = " ".join(run(COMMANDS[4], tmp_path)[1].split())
    parts = [" ".join(part.split()) for part in SHOWN.split("\n...\n")]
    assert all(part in printed for part in parts)
    assert sum(part.count(" on ") for part in parts) > len(places)


@pytest.mark.slow
def test_what_to_run_on_a_budget_of_devices(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    words = COMMANDS[5]
    status, out = run(words, tmp_path)
    assert status == 0
    heads = [line.partition(":")[0] for line in out.splitlines()[1:8]]
    assert heads == ["fleet", "precision", "gives", "runs", "limit", "speculate", "risk"]
    kept = tmp_path / words[words.index("-o") + 1]
    plan = msgspec.json.decode((kept / "plan.json").read_bytes(), type=FleetPlan)
    assert len(plan.rows) == 4  # no speculation, a head, a small model on the targets' devices and elsewhere
    assert all(command in out for command in plan.commands)
    assert read_scenario(kept / "chosen.toml").verifiers.count == int(plan.rows[0].targets.split()[0])
