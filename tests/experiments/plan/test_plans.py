"""Answers: a star by its targets, methods by load, fleets for arrivals; and what is kept of them."""

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

pytest.importorskip("numba")

import specfleet
from specfleet.cli.plans import print_answer, write_answer
from specfleet.experiments.draw import draw, read_plan
from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.deployments import Deployment, Load, Question
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.ranges import slowed
from specfleet.experiments.plan.search import Simulations, find
from specfleet.experiments.plan.trials import INDIFFERENT, simulated
from specfleet.experiments.report.pages import plan_page
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Workload
from tests.helpers.marks import slow
from tests.helpers.plans import FEW, HEAD, PAIR, SMALL, TARGET, candidates


@pytest.fixture(scope="module")
def star() -> Plan:
    return specfleet.plan("star", SMALL, vary=FEW, least="tokens_per_s_per_user=60", jobs=1)


@pytest.fixture(scope="module")
def placed() -> Plan:
    return specfleet.plan("star", SMALL, vary=FEW, **PAIR)


@pytest.fixture(scope="module")
def methods() -> Plan:
    drafts, accepted = [HEAD, "llama-3.2-1b@l4", "lookup"], ["0.7", "lookup=0"]
    changes = {"workload.new_tokens": 40, "workload.prompt_tokens": 64, "drafters.depth": 2}
    return specfleet.plan(
        None, changes, target=TARGET, draft=drafts, acceptance=accepted, link="10Gbit+50us", in_flight=[4, 1], jobs=1
    )


def star_question() -> Question:
    made = candidates(TARGET, "llama-3.2-1b@l4", scenario=scenario_of("star", SMALL), serving=False, depths=(2, 4))
    return Question(tuple(made), Load(each=1), targets=(1, 2, 3))


@pytest.mark.parametrize("per_s", [0.0, slow(20.0)])
def test_the_chosen_fleet_is_the_full_grids_best(per_s: float) -> None:
    """The grid has other seeds."""
    question = star_question()
    if per_s:
        made = candidates(TARGET, HEAD, scenario=scenario_of("star", SMALL), depths=(1, 3))
        question = Question(tuple(made), Load(per_s=per_s), targets=(1, 2))
    chosen = find(question).best[0]
    grid = Simulations(question, 1, lambda _what: None, first_seed=1000)
    fleets = [one.fleet for one in grid.estimates.values() if one.may_win]
    grid.run(fleets, 4)
    best = min(fleets, key=grid.rank)
    grid.best = [best]
    assert chosen == best or grid.gap(chosen, best).value < INDIFFERENT or grid.standing(chosen) == "level"


@pytest.mark.parametrize("change", ["dearer", "slower"])
def test_a_dominated_device_is_never_chosen(change: str) -> None:
    question = star_question()
    worse = [
        replace(one, target="worse", target_per_hour=1.3 * one.target_per_hour)
        if change == "dearer"
        else replace(one, target="worse", base=slowed(one.base, 1.5))
        for one in question.candidates
    ]
    found = find(replace(question, candidates=(*worse, *question.candidates)))
    assert found.best[0].candidate.target == TARGET
    assert found.best[0] == find(question).best[0]
    assert not any(one.candidate.target == "worse" and found.standing(one) == "level" for one in found.best)


def test_a_star_is_answered_by_its_targets(star: Plan) -> None:
    assert [line.partition(":")[0] for line in star.lines] == [
        "fleet", "gives", "runs", "limit", "carries", "rounds", "depths", "turns", "a drafter elsewhere pays", "risk"
    ]  # fmt: skip
    assert star.chosen.fleet in star.lines[0]
    assert {row.targets for row in star.rows if row.drafters} == {1, 2, 3, 4}
    assert star.rule is not None
    carries = r"for one request at a time \(group one\), 1 in flight at each target: at depth "
    carries += f"{star.rule.depth} N_full = {star.rule.N_full}, "
    assert re.search(carries, star.lines[4])
    S_ms, Z_ms = map(float, re.findall(r"S = ([\d.]+) ms, Z = ([\d.]+) ms", star.lines[4])[0])
    assert math.ceil(Z_ms / S_ms) + 1 == star.rule.N_full
    assert star.chosen.per_million == min(
        row.per_million for row in star.best() if not row.standing.startswith("misses")
    )


def test_requests_beyond_a_limit_wait() -> None:
    said, limited = list[str](), SMALL | {"verifiers.max_num_seqs": 2}
    found = specfleet.plan(None, limited, target=TARGET, in_flight=6, jobs=1, done=said.append)
    runs = next(line for line in found.lines if line.startswith("runs"))
    assert runs == "runs: 2 requests at once at each target, 4 wait (max_num_seqs), in under 1% of its KV cache"
    assert "--max-num-seqs 2 " in found.commands[0]
    assert {what.partition("; ")[2] for what in said} == {f"best so far: {found.chosen.fleet}"}


def test_loads_beyond_what_runs_at_once_shape_no_schedule() -> None:
    """And depths say where their acceptance ends."""
    limits = {"verifiers.max_num_seqs": 4, "workload.new_tokens": 16, "workload.prompt_tokens": 20}
    asked = {"target": "llama-3.1-8b@h100", "draft": "eagle3", "acceptance": "eagle3=.9,.8", "jobs": 1}
    found = specfleet.plan("star", limits, in_flight=6, **asked)
    (depths,) = [line for line in found.lines if line.startswith("depths")]
    assert "; deeper was not tried: acceptance ends at position 2, --acceptance 2.7@2 goes on" in depths
    numbers = re.findall(r"\d+ (?:to \d+ )?in flight|\d+", depths.partition("by load")[2])
    assert {int(number) for number in re.findall(r"\d+", " ".join(numbers))} <= {0, 1, 2, 6}


def test_the_load_of_a_plan_replaces_streams_of_a_scenario() -> None:
    short = {"workload.new_tokens": 16, "workload.streams": 9}
    found = specfleet.plan("star", short, target="llama-3.1-8b@h100", in_flight=2, jobs=1)
    assert "workload.streams = 9 of the scenario: the plan's load replaces it" in found.notes
    assert found.loads == ("2 in flight at each target",)


def test_a_layout_stated_for_several_devices_names_the_others() -> None:
    short = {"workload.new_tokens": 16, "workload.prompt_tokens": "0.1k"}
    for place, said in (("2xh100", 1), ("h100", 0)):
        lines = specfleet.plan("star", short, target=f"llama-3.1-8b@{place}", in_flight=2, jobs=1).lines
        layout = "layout: stated; --devices 2xh100 --target llama-3.1-8b compares other layouts and precisions"
        assert sum(line.startswith(layout) for line in lines) == said


def test_a_users_goal_is_shown_in_tokens_a_second(star: Plan, tmp_path: Path) -> None:
    (goal,) = star.goals
    assert (goal.unit, goal.limit) == ("tokens/s a user", 60)
    assert goal.low <= goal.value <= goal.high
    assert goal.value == pytest.approx(1 / star.chosen.metrics["tpot_s"].value)
    write_answer(star, tmp_path)
    page = specfleet.report(tmp_path)
    assert f"requests get 60 tokens/s or more on average: {goal.state}, {goal.value:.4g} tokens/s a user" in page
    (plain,) = [row for row in star.best() if not row.depth]
    share = 1 - 1 / plain.metrics["tpot_s"].value / 60
    assert plain.standing == f"misses tokens_per_s_per_user >= 60 by {share:.0%}"
    assert "0.01667" not in page


def test_drafters_elsewhere_stand_beside_those_on_the_target(placed: Plan) -> None:
    names = {row.method for row in placed.best()}
    assert names == {"no speculation", "llama-3.2-1b on the target's device", "llama-3.2-1b@l4"}
    assert placed.chosen.standing == "best"
    assert any("never, even on a link of 0 ms with llama-3.2-1b@l4: " in line for line in placed.lines)
    dear = specfleet.plan("star", SMALL, vary=FEW, **PAIR | {"cost": "h100=1,l4=50"})
    assert not dear.chosen.drafters


def test_a_limit_at_the_planned_load_is_the_planned_rate() -> None:
    few = {"workload.prompt_tokens": 1000, "workload.new_tokens": 10, "drafters.depth": 2}
    options: dict[str, Any] = {"draft": "llama-3.1-8b", "acceptance": ".8,.6", "in_flight": 1, "jobs": 1}
    found = specfleet.plan(None, few, target="llama-3.1-70b@8xl40s", **options)
    said = r"beyond ([\d.]+) requests/s more add little \(devices saturated\), with 1 at once"
    (per_s,) = re.findall(said, str(found.lines))
    assert float(per_s) * 10 == pytest.approx(found.chosen.tokens_per_s, rel=0.02)


def test_the_closest_fleet_is_the_smallest_that_is_level() -> None:
    made, (goal,) = candidates(TARGET, scenario=scenario_of("star", SMALL)), parse_slo(["tpot_mean=1ms"])
    found = find(Question(tuple(made), Load(per_s=20.0), (goal,), targets=tuple(range(1, 9))))
    best, first = found.best[0], found.fastest or found.best[0]
    level = [
        fleet for title, values in found.values.items() if values and (fleet := found.estimates[title].fleet)
        and max((1 + found.miss(fleet)) / (1 + found.miss(first)) - 1, found.gap(fleet, first).value) <= INDIFFERENT
    ]  # fmt: skip
    assert best == min(level, key=lambda fleet: fleet.replicas) != first


@pytest.mark.parametrize(("limit", "served"), [("6.5ms", ["1 in flight at each target"]), ("1ms", [])])
def test_nothing_is_served_where_no_method_meets_the_goals(limit: str, served: list[str]) -> None:
    options: dict[str, Any] = {"target": TARGET, "draft": HEAD, "acceptance": 0.7, "slo": f"tpot_mean={limit}"}
    short = {"workload.new_tokens": 16, "workload.prompt_tokens": 20}
    lines = specfleet.plan(None, short, in_flight=[1, 256], jobs=1, **options).lines
    assert [line[9:].partition(": ")[0] for line in lines if line.startswith("serve")] == served
    assert served or not any(line.startswith("schedule") for line in lines)
    alone = specfleet.plan(None, short, in_flight=256, jobs=1, **options)
    assert (alone.scenario, alone.commands, alone.goals[0].state) == (None, (), "missed")
    assert alone.lines[0].startswith("fleet: none looked at meets the goals; closest: 1 x ")
    assert "in the command" not in str(alone.lines)


def test_each_load_of_a_budget_is_served_by_its_layout() -> None:
    options: dict[str, Any] = {"target": "llama-3.1-70b", "draft": "eagle-llama-3-70b", "acceptance": 0.8, "jobs": 1}
    short = {"workload.new_tokens": 40, "workload.prompt_tokens": 64, "drafters.depth": 3}
    found = specfleet.plan(None, short, devices="4xh100", in_flight=[4, 256], **options)
    for load in found.loads:
        row, parallel = found.best(load)[0], r"@(\d)xh100"
        (line,) = [line for line in found.lines if line.startswith(f"serve at {load}: ")]
        assert re.findall(r"-parallel-size (\d)", line) == re.findall(parallel, row.target.replace("@1x", "@"))
        assert f"{load}: {row.targets} x {row.target}, " in found.lines[0]


def test_bf16_is_searched_where_no_fleet_meets_the_goals() -> None:
    options: dict[str, Any] = {"target": "llama-3.1-70b", "draft": "eagle-llama-3-70b", "acceptance": 0.8, "jobs": 1}
    short = {"workload.new_tokens": 40, "workload.prompt_tokens": 64, "drafters.depth": 3}
    lines = specfleet.plan(None, short, devices="4xh100", in_flight=32, slo="tpot_p99=10ms", **options).lines
    assert "; in bf16: 1 x llama-3.1-70b@4xh100:bf16, eagle-llama-3-70b on the target's device, depth 3, " in lines[1]


@pytest.mark.parametrize(("limit", "said"), [("20ms", True), ("4ms", False)])
def test_a_plan_says_that_no_speculation_is_enough(limit: str, said: bool) -> None:
    options: dict[str, Any] = {"draft": HEAD, "acceptance": 0.7, "in_flight": 2, "slo": f"tpot_mean={limit}"}
    found = specfleet.plan(None, SMALL | {"drafters.depth": 2}, target=TARGET, jobs=1, **options)
    (plain,) = [row for row in found.best() if not row.depth]
    gives = next(line for line in found.lines if line.startswith("gives: "))
    assert found.chosen.depth
    assert gives.endswith(f"; no speculation meets it, too: {plain.standing}") == said
    assert plain.standing.startswith("misses") != said


@pytest.mark.parametrize("per_s", [None, 4.0])
def test_keys_that_are_set_are_not_searched(per_s: float | None) -> None:
    fixed = SMALL | {"drafters": {"depth": 3}, "verifiers.count": 2, "drafters.count": 2}
    plan = specfleet.plan("star", fixed, arrivals=per_s or (), jobs=1)
    assert {(row.drafters, row.targets, row.depth) for row in plan.rows if row.drafters} == {(2, 2, 3)}
    assert any(re.match(r"rounds: .*a drafter apart, 1 target a drafter: [\d.]+ ms for ", line) for line in plan.lines)
    varied = specfleet.plan("star", fixed, arrivals=per_s or (), vary=["verifiers.count=1", "drafters.count=1"], jobs=1)
    assert {row.targets for row in varied.rows} == {1}


def test_depths_end_where_acceptance_does() -> None:
    known = {"acceptance": {"model": "per-position", "survival": [0.8, 0.6, 0.3]}}
    plan = specfleet.plan("star", SMALL | known, vary="verifiers.count=2", jobs=1)
    assert {row.depth for row in plan.rows if row.drafters} <= {1, 2, 3}


def test_each_rows_scenario_simulates_to_its_numbers(star: Plan, placed: Plan, methods: Plan, tmp_path: Path) -> None:
    for number, plan in enumerate((star, placed, methods)):
        folder = tmp_path / str(number)
        _, _, *files = write_answer(plan, folder)
        assert ("chosen.toml" in files) == (plan != methods)
        for row, file in zip(plan.best(), files, strict=True):
            assert f"# {row.load}: {row.fleet}: {row.standing}\n" in (folder / file).read_text()
            again = specfleet.simulate(folder / file).metrics
            assert again["throughput"].value == pytest.approx(row.tokens_per_s, rel=0.05)
            assert again["cost_per_million_tokens"].value == pytest.approx(row.per_million, rel=0.05)
        assert read_plan(folder / "plan.json") == msgspec.convert(msgspec.to_builtins(plan), Plan)
    (folder / "2-mine.toml").write_text("# Written by hand.\n")
    write_answer(star, folder)  # leaves no rows of the answer before
    assert len(list(folder.glob("*.toml"))) == len(star.best()) + 1


def test_the_chosen_scenario_finds_the_files_of_the_question(
    star: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = star.scenarios
    named = replace(first, workload=Workload(lengths="texts.csv"))
    write_answer(replace(star, scenarios=(named, *others)), Path("kept"))
    assert specfleet.scenario_of("kept/chosen.toml").workload.lengths == str(tmp_path / "texts.csv")


def test_more_in_flight_decode_more_and_each_more_slowly(methods: Plan) -> None:
    assert methods.loads == ("1 in flight at each target", "4 in flight at each target")
    for method in {row.method for row in methods.best()}:
        one, four = (next(row for row in methods.best(load) if row.method == method) for load in methods.loads)
        assert one.tokens_per_s / one.targets < four.tokens_per_s / four.targets < 4.2 * one.tokens_per_s
        assert one.metrics["tpot_s"].value < four.metrics["tpot_s"].value


def test_throughput_and_times_obey_littles_law(methods: Plan) -> None:
    for row in methods.best():
        latency_s = row.metrics["ttft_s"].value + 39 * row.metrics["tpot_s"].value
        assert row.tokens_per_s / row.targets / 40 * latency_s == pytest.approx(row.in_flight, rel=0.03), row.fleet


def test_one_request_without_drafts_takes_its_steps(methods: Plan) -> None:
    step_s = specfleet.estimate(TARGET).decode.mean_s(1, 84)
    (plain,) = [row for row in methods.best(methods.loads[0]) if row.method == "no speculation"]
    assert plain.metrics["tpot_s"].value == pytest.approx(step_s, rel=0.02)


def test_the_best_method_costs_least_and_has_a_command(
    methods: Plan, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for load in methods.loads:
        best, *others = methods.best(load)
        assert best.standing == "best"
        assert best.per_million <= min(row.per_million for row in others)
        assert best.method in methods.lines[0]
    begins = "serve at 1 to 4 in flight at each target: vllm serve meta-llama/Llama-3.1-8B --max-model-len 1024 "
    assert any(line.startswith(begins) for line in methods.lines)
    print_answer(methods)
    printed = capsys.readouterr().out
    assert "prompt lookup" in printed
    assert "\nanother row as the answer: --target, its --draft alone (elsewhere: and --set drafters.place" in printed
    axes = draw("plan", methods, tmp_path / "plan.png").figure.axes[0]
    assert {line.get_label() for line in axes.lines} >= {row.method for row in methods.best()}


def test_hopeless_drafts_are_turned_off() -> None:
    changes = {"workload.new_tokens": 40, "workload.prompt_tokens": 64}
    found = specfleet.plan(None, changes, target=TARGET, draft="lookup", acceptance="0", in_flight=[1, 2], jobs=1)
    (line,) = [line for line in found.lines if line.startswith("depths: prompt lookup: ")]
    assert line.count("off level") + line.count("off best") == 2
    assert "no speculation" in found.lines[0]
    assert not any("ngram" in line for line in found.lines if line.startswith("serve"))
    one = specfleet.plan(None, changes, target=TARGET, draft="lookup", acceptance="0", in_flight=1, jobs=1)
    assert [(what[:7], line.split()[:2]) for what, line in plan_page(one).commands] == [
        ("Start a", ["vllm", "serve"]), ("Start a", ["python", "-m"]), ("Measure", ["vllm", "bench"])
    ]  # fmt: skip


def test_a_scenarios_server_is_planned_at_several_loads() -> None:
    profile = specfleet.estimate(TARGET, f"{HEAD}@h100", engine="vllm")
    server = {
        "profile": profile, "drafters": {"place": "target", "kind": "eagle", "depth": 2},
        "acceptance": {"model": "geometric", "beta": 0.7},
        "workload": {"requests": 8, "prompt_tokens": 64, "new_tokens": 40},
    }  # fmt: skip
    found = specfleet.plan(make_scenario(server), {"drafters.depth": 2}, in_flight=[1, 2], jobs=1)
    assert {row.method for row in found.best()} == {"no speculation", "drafts on the target's device (eagle)"}
    assert not any("serve at" in line for line in found.lines)  # its model has no name


def test_what_is_assumed_of_a_question_is_said() -> None:
    options: dict[str, Any] = {"target": TARGET, "draft": ["lookup", HEAD], "in_flight": 1, "jobs": 1}
    found = specfleet.plan(None, {"workload.new_tokens": 40, "drafters.depth": 2}, acceptance="0.5", **options)
    assert found.title.endswith("tokens, answers of about 40 (defaults: --set workload.prompt_tokens=N)")
    assert f"acceptance: equal for lookup and {HEAD}, which differ; --acceptance lookup=... states it" in found.notes
    stated = specfleet.plan(None, SMALL | {"drafters.depth": 2}, acceptance=["0.5", "lookup=0.1"], **options)
    assert stated.title.endswith("answers of about 48")
    assert not any("one for" in note for note in stated.notes)


def test_a_candidate_without_room_is_left_out_first(capsys: pytest.CaptureFixture[str]) -> None:
    narrow = {"target": "llama-3.1-70b@2xh100", "draft": "llama-3.1-8b@l40s", "acceptance": 0.8, "jobs": 1}
    found = specfleet.plan(None, SMALL | {"drafters.depth": 2}, in_flight=1, **narrow)
    assert {row.method for row in found.best()} == {"no speculation", "llama-3.1-8b@l40s"}
    assert "left out: llama-3.1-8b on the target's device: the drafter and its cache have no room" in str(found.notes)
    several = narrow | {"draft": ["llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b"]}  # two of them have no room, or misfit
    notes = specfleet.plan(None, SMALL | {"drafters.depth": 2}, in_flight=1, **several).notes
    assert [note.startswith("left out") for note in notes].count(True) == 2
    assert not any(note.startswith("acceptance: one for") for note in notes)
    print_answer(found)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].startswith("left out: llama-3.1-8b on")
    assert "left out" not in printed.err
    with pytest.raises(InputError, match="do not fit into a KV cache"):
        specfleet.plan(None, {"workload.prompt_tokens": 10**5}, target="llama-3.1-70b@h100:fp8", in_flight=1)


def test_a_part_of_a_star_stands_for_all_of_it() -> None:
    plain = star_question().candidates[0]
    one, five = (
        simulated(Deployment(plain, count).scenario(Load(each=1), 96 * count))["throughput"] for count in (1, 5)
    )
    assert five == pytest.approx(5 * one, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "keys", "said"),
    [
        ({}, {"draft": "llama-3.2-1b@l4"}, "give --target, too"),
        ({"drafters.count": 0}, {}, r"drafters.count = \[0\]: a plan varies it from 1 on"),
        ({"workload.requests": 100}, {}, "has no effect, since a plan has as many as it needs; leave it out"),
        ({"verifiers.tiers": [{"first": 1, "step": {"base_s": 0.1}}]}, {}, "like devices: sweep the mix, .* leave it"),
        ({"cost": {"target_per_hour": 0.0, "drafter_per_hour": 1.0}}, {}, "an hour of a target costs 0"),
        ({"profile": ""}, {}, "name a profile"), ({"workload.streams": 8}, {}, "give --in-flight; leave it out"),
        ({"verifiers.verify": {"base_s": 0.06}}, {"target": TARGET}, "verify would replace the times of --target"),
        ({"workload.arrivals": {"process": "trace", "file": "a.csv"}}, {}, "a plan draws its arrivals"),
        ({}, {"slo": "tpot=1"}, "no time of requests"), ({}, {"cost": "h100=1"}, "no device has a name here"),
        ({"workload.new_tokens": 1}, {}, "answers of one token have no time"), ({}, {"arrivals": -1.0}, "above 0"),
        ({}, {"least": "slo_attainment=99%"}, r"share of requests that meet \[slo\]"),
        ({"verifiers.prefix_cache": False}, {"cached": 0.7}, "--cached 0.7: verifiers.prefix_cache = false keeps no"),
    ],
)  # fmt: skip
def test_questions_that_are_none_are_refused_in_one_line(changes: Any, keys: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        specfleet.plan("star", changes, jobs=1, **keys)


def test_the_scenarios_prices_and_goals_are_defaults(placed: Plan) -> None:
    prices, goal = {"target_per_hour": 3.0, "drafter_per_hour": 0.4, "unit": "EUR"}, {"tpot_s": 1e3, "ttft_s": 1e3}
    options = {key: value for key, value in PAIR.items() if key != "cost"}
    found = specfleet.plan(
        "star", SMALL | {"cost": prices, "slo": goal}, vary=FEW, least="slo_attainment=99%", **options
    )
    assert (found.unit, found.chosen.fleet) == ("EUR", placed.chosen.fleet)
    assert found.chosen.per_million == placed.chosen.per_million
    (goal_met,) = found.goals
    assert (goal_met.unit, goal_met.limit, goal_met.state) == ("share", 0.99, "met")
