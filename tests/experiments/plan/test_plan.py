"""Plans: the choice is the full grid's, rivals stand beside it, and what cannot be reached is said."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import specfleet
from specfleet.cli.plans import print_answer, write_answer
from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.ask import make_plan
from specfleet.experiments.plan.doubt import carries
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.question import APART, COLOCATED, PLAIN, FleetShape, Question
from specfleet.experiments.plan.screen import screen
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.group import AllWaiting, One
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.arrivals import Poisson
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.scenario import Drafters, Workload
from specfleet.fleet.scenario.slo import Slo
from specfleet.sim.run import simulate
from tests.helpers.grids import holds, try_out
from tests.helpers.marks import slow
from tests.helpers.questions import question_of, small_question

SMALL = {"workload.new_tokens": 48, "workload.prompt_tokens": 64}
FEW = ["verifiers.count=1:4", "drafters.depth=2,4,6"]
PAIR: dict[str, Any] = {
    "target": "llama-3.1-8b@h100",
    "draft": "llama-3.2-1b@l4",
    "link_s": 0.002,
    "acceptance": 0.8,
    "cost": "h100=3,l4=0.4",
}


@pytest.fixture(scope="module")
def closed() -> Plan:
    return specfleet.plan("star", SMALL, vary=FEW, jobs=1, **PAIR)


@pytest.fixture(scope="module")
def serving() -> Plan:
    changes = SMALL | {"drafters.count": 1}
    return specfleet.plan(
        "star", changes, arrivals_per_s=8.0, least="tokens_per_s_per_user_p99=60",
        vary=["drafters.count=1", "verifiers.count=1:5", "drafters.depth=2,4"], jobs=1, **PAIR,
    )  # fmt: skip


@pytest.mark.parametrize("number", [slow(number) for number in (0, 1, 2, 5)])
def test_the_chosen_fleet_is_the_full_grids_best(number: int) -> None:
    assert holds(small_question(number))


def test_the_answer_has_five_lines_and_every_kind_of_fleet(closed: Plan, serving: Plan) -> None:
    for plan in (closed, serving):
        assert {row.kind for row in plan.rows if row.method == "simulated"} == {APART, COLOCATED, PLAIN}
        assert [line.partition(":")[0] for line in plan.lines] == ["fleet", "gives", "limit", "instead", "next"]
        assert plan.chosen.title in plan.lines[0]


def test_the_question_says_lengths_and_acceptance(closed: Plan, serving: Plan) -> None:
    given = "prompts of 64 tokens, answers of 48, acceptance assumed: geometric with beta = 0.8: "
    assert f"; targets that decode all the time, {given}" in closed.question
    assert f"; 8 requests/s, {given}" in serving.question
    assumed = specfleet.plan("star", SMALL, vary=["verifiers.count=1", "drafters.depth=2"], jobs=1)
    assert "acceptance assumed: geometric with beta = 0.75: 2.29 accepted tokens a round at depth 5" in assumed.question


def test_ranges_hold_chance_and_wrong_step_times(closed: Plan) -> None:
    throughput, cost = closed.metrics["throughput"], closed.metrics["cost_per_million"]
    assert throughput.low < throughput.value < throughput.high
    assert throughput.high / throughput.value - 1 > throughput.chance
    assert cost.low == pytest.approx(cost.value * throughput.value / throughput.high, rel=0.05)
    sure = specfleet.plan("star", SMALL, vary=FEW, jobs=1, step_error=1e-9, **PAIR)
    assert sure.chosen == closed.chosen
    for name in ("throughput", "tpot_p99_s", "cost_per_million"):
        narrow, wide = sure.metrics[name], closed.metrics[name]
        assert narrow.high - narrow.low < wide.high - wide.low
    none = sure.metrics["throughput"]
    assert none.high / none.value - 1 == pytest.approx(none.chance, abs=1e-6)


def test_times_have_no_upper_end_where_slower_steps_overload_the_fleet() -> None:
    (pair,) = small_question(1).pairs
    base = replace(pair.base, slo=Slo(tpot_s=1e3))

    def question(per_s: float) -> Question:
        workload = replace(base.workload, arrivals=Poisson(per_s))
        one = replace(pair, base=replace(base, workload=workload))
        return Question((one,), (1,), (1,), {}, tuple(parse_slo(["tpot_mean=1000s"])))

    def carried(per_s: float) -> bool:
        return any(one.shape.kind == PLAIN and one.tpot_s < math.inf for one in screen(question(per_s)))

    most = max(per_s for per_s in np.geomspace(1e-2, 1e4, 200).tolist() if carried(per_s))
    for step_error, state in ((1e-6, "met"), (0.5, "at its edge")):
        plan = make_plan(question(0.9 * most), step_error=step_error)
        tpot, attainment, (goal,) = plan.metrics["tpot_s"], plan.metrics["slo_attainment"], plan.goals
        assert (plan.chosen.kind, goal.state) == (PLAIN, state)
        assert math.isinf(tpot.high) == (attainment.low == 0) == (state != "met")
        assert ("slower targets do not carry the load" in plan.lines[1]) == (state != "met")
        assert math.isfinite(plan.metrics["throughput"].high)


def test_slower_steps_carry_no_more_than_equations_say() -> None:
    question = question_of(1003)
    for one in screen(question)[::3]:
        factors = {"targets": 1e4, "drafters": 1e4 if one.shape.kind == APART else 1.0}
        for role, factor in factors.items():
            assert carries(question, one.shape, role, 1.0) == math.isfinite(one.tpot_s)
            assert factor == 1.0 or not carries(question, one.shape, role, factor)


@pytest.mark.parametrize("key", ["lengths", "arrivals.file"])
def test_a_plan_has_all_lengths_of_a_file(key: str, tmp_path: Path) -> None:
    """Also the longer ones of its second half, whatever the scenario's number of requests."""
    rows = [f"{number},40,20" for number in range(100)] + [f"{number},60,40" for number in range(100, 200)]
    (tmp_path / "texts.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]))
    trace = "workload.arrivals.process = 'trace'\n" if key == "arrivals.file" else ""
    (tmp_path / "mine.toml").write_text(f"{trace}workload.{key} = 'texts.csv'\nworkload.requests = 10\n")
    few = ["verifiers.count=2", "drafters.depth=2"]
    plan = specfleet.plan(tmp_path / "mine.toml", arrivals_per_s=8.0, vary=few, jobs=1, **PAIR)
    assert plan.chosen is not None
    assert plan.scenario.workload.lengths == str(tmp_path / "texts.csv")
    assert {row.tokens_per_s for row in plan.rows} == {8 * 30}


def test_goals_are_judged_by_the_whole_range(serving: Plan) -> None:
    goal = serving.goals[0]
    inside = goal.range.low <= goal.limit <= goal.range.high
    assert goal.state == ("at its edge" if inside else "met" if goal.range.high <= goal.limit else "missed")


def test_unreached_goals_are_reported_with_their_miss() -> None:
    plan = specfleet.plan("star", SMALL, slo="tpot_p99=100us", vary=FEW, jobs=1, **PAIR)
    assert plan.chosen is None
    assert plan.scenario is None
    assert "none of those looked at reaches the goals" in plan.lines[0]
    assert all("misses by" in line for line in plan.lines[1:])
    assert all(row.standing != "chosen" for row in plan.rows)


def test_a_load_that_no_fleet_carries_is_said() -> None:
    plan = specfleet.plan("star", SMALL, arrivals_per_s=10_000.0, vary=["verifiers.count=1:2"], jobs=1, **PAIR)
    assert plan.chosen is None
    assert "no fleet can carry the load" in "".join(plan.lines)


def test_who_wants_drafters_apart_gets_them_with_the_rivals_beside(closed: Plan) -> None:
    plan = specfleet.plan("star", SMALL, vary=FEW, apart=True, jobs=1, **PAIR)
    assert plan.chosen.kind == APART
    assert "drafts for itself" in plan.lines[3]
    assert "no speculation" in plan.lines[3]
    assert plan.metrics["cost_per_million"].value >= closed.metrics["cost_per_million"].value


def test_dearer_drafters_drive_them_out() -> None:
    dear = PAIR | {"cost": "h100=1,l4=50"}
    plan = specfleet.plan("star", SMALL, vary=FEW, jobs=1, **dear)
    assert plan.chosen.kind != APART


@pytest.mark.parametrize(("tokens_per_s", "targets"), [(400, 2), (640, 3), (665, 4)])  # 221 of each
def test_goals_of_all_tokens_are_met_by_more_targets(tokens_per_s: int, targets: int) -> None:
    keys = PAIR | {"cost": "h100=1,l4=50", "least": f"tokens_per_s={tokens_per_s}"}
    plan = specfleet.plan("star", SMALL, vary=["drafters.depth=6", "verifiers.count=1:5"], jobs=1, **keys)
    assert (plan.chosen.kind, plan.chosen.targets) == (COLOCATED, targets)
    assert plan.metrics["throughput"].value >= tokens_per_s


def test_depths_end_where_acceptance_does() -> None:
    known = {"acceptance": {"model": "per-position", "survival": [0.8, 0.6, 0.3]}}
    plan = specfleet.plan("star", SMALL | known, vary="verifiers.count=2", jobs=1)
    assert {row.levers["drafters.depth"] for row in plan.rows if row.kind == APART} == {1, 2, 3}
    with pytest.raises(InputError, match=r"depth = 4 goes beyond survival"):
        specfleet.plan("star", SMALL | known, vary="drafters.depth=2:4", jobs=1)


@pytest.mark.parametrize("per_s", [None, 1.0])
def test_keys_that_are_set_are_not_searched(per_s: float | None) -> None:
    fixed: dict[str, Any] = {
        "drafters": {"depth": 3},
        "verifiers.count": 2,
        "drafters.count": 2,
        "verifiers.max_num_seqs": 1,
    }
    plan = specfleet.plan("star", SMALL, arrivals_per_s=per_s, jobs=1, **PAIR, **fixed)
    assert {(row.drafters, row.targets, row.levers["drafters.depth"]) for row in plan.rows if row.kind == APART} == {
        (2, 2, 3)
    }
    assert plan.scenario.verifiers.max_num_seqs == 1
    varied = specfleet.plan("star", SMALL, arrivals_per_s=per_s, vary="verifiers.count=1", jobs=1, **PAIR, **fixed)
    assert {row.targets for row in varied.rows} == {1}


@pytest.mark.parametrize(
    ("group", "given", "batches"),
    [
        (One(), {}, AllWaiting()),
        (One(), {"drafters.group": "one"}, One()),
        (AllWaiting(4), {}, AllWaiting(4)),
        (One(), {"drafters.group": {"policy": "batch", "most": 2}}, AllWaiting(2)),
    ],
)
def test_arrivals_share_draft_steps_unless_the_scenario_groups_them(group: Any, given: Any, batches: Any) -> None:
    base = scenario_of("star", {"drafters.depth": 2})
    base = replace(base, drafters=replace(base.drafters, group=group))
    few = ["drafters.count=1", "verifiers.count=1", "drafters.depth=2"]
    plan = specfleet.plan(base, SMALL | given, arrivals_per_s=1.0, apart=True, vary=few, jobs=1, **PAIR)
    assert plan.scenario.drafters.group == batches


@pytest.mark.parametrize("more", [[], ["llama-3.1-70b@h100:int4"]])
def test_a_drafter_without_room_beside_its_target_is_said(more: list[str]) -> None:
    narrow = PAIR | {"target": ["llama-3.1-70b@l40s:int4", *more], "draft": "llama-3.2-1b@rtx-4090", "cost": ()}
    plan = specfleet.plan("star", SMALL, vary=FEW, apart=True, jobs=1, **narrow)
    assert plan.chosen.kind == APART
    assert f"co-located{' on l40s' * bool(more)}: the drafter and its cache have no room" in plan.lines[3]
    assert {row.target_place for row in plan.rows if row.kind == COLOCATED} == ({"h100"} if more else set())


def test_a_rule_of_lengths_leaves_no_depth_to_search() -> None:
    rule = {"verifiers.allocate": {"policy": "fixed", "depth": 2}}
    plan = specfleet.plan("star", SMALL | rule, vary="verifiers.count=2", jobs=1, **PAIR)
    assert all(row.levers == {} for row in plan.rows)
    assert {row.fleet for row in plan.rows} == {
        "1 drafter for 2 targets", "2 targets that draft for themselves", "2 targets, no speculation"
    }  # fmt: skip


def test_the_chosen_scenario_simulates_to_the_plans_numbers(closed: Plan, tmp_path: Path) -> None:
    write_answer(closed, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"chosen.toml", "pareto.png", "plan.json", "profile.json"}
    again = specfleet.simulate(tmp_path / "chosen.toml").metrics
    copies = closed.chosen.targets / closed.scenario.verifiers.count
    assert again["throughput"].value * copies == pytest.approx(closed.metrics["throughput"].value, rel=0.05)
    cost = again["cost_per_million_tokens"].value
    assert cost == pytest.approx(closed.metrics["cost_per_million"].value, rel=0.05)
    kept = msgspec.json.decode((tmp_path / "plan.json").read_bytes(), type=Plan)
    assert kept == closed


def test_the_chosen_scenario_finds_the_files_of_the_question(
    closed: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = replace(closed.scenario, workload=Workload(lengths="texts.csv"))
    write_answer(replace(closed, scenario=scenario), Path("runs/plan"))
    assert specfleet.scenario_of("runs/plan/chosen.toml").workload.lengths == str(tmp_path / "texts.csv")


def test_a_part_of_a_fleet_stands_for_all_of_it() -> None:
    question = question_of(0)
    plain = FleetShape(PLAIN, 0, 5)
    part = try_out(question, plain)["throughput"]
    base = question.pairs[0].base
    whole = msgspec.structs.replace(base, drafters=type(base.drafters)(count=0))
    verifiers = msgspec.structs.replace(whole.verifiers, count=5)
    workload = msgspec.structs.replace(whole.workload, requests=240)
    run = simulate(msgspec.structs.replace(whole, verifiers=verifiers, workload=workload))
    assert part == pytest.approx(measure(run)["throughput"].value, rel=0.02)


def test_equations_are_printed_with_their_error(
    closed: Plan, serving: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    for plan, metric, off in ((closed, "tokens_per_s", 0.15), (serving, "tpot_s", 0.25)):
        assert plan.approximation.metric == metric
        assert plan.approximation.fleets == sum(row.method == "simulated" for row in plan.rows)
        assert 0 < plan.approximation.mean <= plan.approximation.worst < off
        print_answer(plan)
        printed, remarks = capsys.readouterr()
        assert remarks.splitlines() == [f"note: {note}" for note in plan.notes]
        assert f"approximate: their {'tokens/s' if metric == 'tokens_per_s' else 'time for a token'} is off" in printed
        assert f"{plan.approximation.worst:.1%} at worst" in printed


@pytest.mark.parametrize("kind", [APART, PLAIN, COLOCATED])
def test_equations_are_near_simulations_of_requests_that_come_by_themselves(kind: str) -> None:
    question = question_of(1003)
    (pair,) = question.pairs
    beside = Drafters(depth=pair.base.drafters.depth, place="target")
    question = replace(question, pairs=(replace(pair, colocated=replace(pair.base, link=None, drafters=beside)),))
    fleets = [one for one in screen(question) if one.shape.kind == kind and math.isfinite(one.tpot_s)]
    tried = [(one, try_out(question, one.shape)) for one in fleets if one.shape.targets in (2, 5)][:3]
    carried = [(one, values["tpot_s"]) for one, values in tried if values["target_load"] < 0.9]
    assert carried
    for one, simulated in carried:
        assert one.tpot_s == pytest.approx(simulated, rel=0.2), one.shape.title


@pytest.mark.parametrize("number", [0, 2, 4])
def test_screening_is_near_the_simulation_in_closed_loops(number: int) -> None:
    question = question_of(number)
    chosen = [one for one in screen(question) if one.shape.targets in (1, 3, 5)]
    for one in chosen[:: max(1, len(chosen) // 4)]:
        simulated = try_out(question, one.shape)["throughput"]
        assert one.tokens_per_s == pytest.approx(simulated, rel=0.25), one.shape.title


@pytest.mark.parametrize(
    ("changes", "keys", "said"),
    [
        ({}, {"target": "llama-3.1-8b@h100"}, "give target and draft"),
        ({"drafters.count": 0}, {}, r"drafters.count = \[0\]: a plan varies it from 1 on"),
        ({"drafters.place": "target"}, {}, "begins with a fleet of drafters and targets"),
        ({"workload.requests": 100}, {}, "has no effect, since a plan has as many as it needs; leave it out"),
        ({"verifiers.tiers": [{"first": 1, "step": {"base_s": 0.1}}]}, {}, "leave tiers, faults out"),
        ({}, {"vary": "verifiers.count=0:3"}, "varies it from 1 on"),
        (
            {},
            {"target": "llama-3.1-8b@h100", "draft": "llama-3.2-1b@l4", "cost": "h100=0,l4=1"},
            "give it a price above 0",
        ),
        ({"cost": {"target_per_hour": 0.0, "drafter_per_hour": 1.0}}, {}, "an hour of a target costs 0"),
        ({"profile": ""}, {}, "name a profile"),
        ({"workload.streams": 8}, {}, "one request a target, or arrivals; leave it out, or give --in-flight"),
        ({"verifiers.verify": {"base_s": 0.06}}, PAIR, "verify would replace the times of --target"),
        ({"workload.arrivals": {"process": "trace", "file": "a.csv"}}, {}, "knows poisson arrivals"),
        ({}, {"slo": "tpot=1"}, "no time of requests"),
        ({"workload.new_tokens": 1}, {}, "answers of one token have no time"),
        ({}, {"least": "slo_attainment=99%"}, r"share of requests that meet \[slo\]"),
        ({}, {"acceptance": 1.5}, "between 0 and 1"),
        ({}, {"arrivals_per_s": -1.0}, "above 0"),
        ({}, {"step_error": 20.0}, "step_error = 20: needs a share above 0, up to 1; 20% is 0.2"),
    ],
)
def test_questions_that_are_none_are_refused_in_one_line(changes: Any, keys: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        specfleet.plan("star", changes, jobs=1, **keys)


def test_a_plan_has_the_notes_of_its_scenarios(closed: Plan) -> None:
    (estimated,) = closed.notes
    assert "delays between steps and links are none unless the scenario gives them" in estimated
    few = ["drafters.count=1", "verifiers.count=4", "drafters.depth=4"]
    plan = specfleet.plan("star", SMALL, arrivals_per_s=1.0, vary=few, jobs=1)
    assert sum("verify takes no longer for several requests than for one" in note for note in plan.notes) == 1


def test_a_plan_of_a_profile_says_co_located_is_unknown() -> None:
    plan = specfleet.plan("star", SMALL, vary=FEW, jobs=1)
    assert "co-located is not known" in plan.lines[3]


def test_the_scenarios_prices_and_goals_are_defaults(closed: Plan) -> None:
    prices, goal = {"target_per_hour": 3.0, "drafter_per_hour": 0.4, "unit": "EUR"}, {"tpot_s": 1e3, "ttft_s": 1e3}
    tables = SMALL | {"cost": prices, "slo": goal}
    options = {key: value for key, value in PAIR.items() if key != "cost"}
    by_scenario = specfleet.plan("star", tables, vary=FEW, jobs=1, least="slo_attainment=99%", **options)
    assert by_scenario.chosen == closed.chosen
    assert by_scenario.unit == "EUR"
    assert by_scenario.metrics["cost_per_million"].value == closed.metrics["cost_per_million"].value
    (goal_met,) = by_scenario.goals
    assert (goal_met.metric, goal_met.limit, goal_met.state) == ("slo_attainment", 0.99, "met")
