"""The curve of an answer: level depths, schedules of servers, ranges, and what turns the advice."""

import json
import math
import shlex
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from specfleet.experiments.plan.answer import goals_reached, ranged
from specfleet.experiments.plan.commands import make_schedule, server_commands
from specfleet.experiments.plan.deployments import Deployment, Load
from specfleet.experiments.plan.depths import Depths, falling, schedule_lines
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.ranges import ANY, RUNS, WIDEST, Errors, Ranges, accepting, errors_of, lower, slowest
from specfleet.experiments.plan.trials import Interval, Sample
from specfleet.fleet.acceptance.models import Geometric, PerPosition, survival
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.shown import with_ends
from specfleet.fleet.times.profile import Server
from tests.helpers.plans import HEAD, TARGET, candidates

BY_LOAD = [(1.0, 5), (8.0, 5), (32.0, 3), (128.0, 0)]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({0: 2, 1: 1.25, 3: 1.009, 4: 1, 5: 1}, "3 to 5 level (a token takes longer by 25% at depth 1, 100% when off)"),
        ({0: math.inf, 4: 1.0, 5: 1.02}, "4 best (a token takes longer by no end when off)"),
        ({0: 1.0, 1: 1.005}, "1 and off level"),
        ({1: 1.0, 2: 1.5}, "1 best"),
    ],
)
def test_level_depths_stand_beside_what_others_lose(times: dict[int, float], said: str) -> None:
    assert Depths(Load(each=8), 8.0, times).text == said


def test_schedules_rise_with_load_only_where_no_level_depth_is_lower() -> None:
    """And two questions agree where they share the loads above."""
    times = [{2: 1.0, 3: 1.0}, {2: 1.1, 3: 1.005, 4: 1.0}, {0: 1.009, 1: 1.0, 2: 1.0, 3: 1.3}, {0: 1.0, 1: 1.2}]
    by_load = [Depths(Load(each=rows), rows, at) for rows, at in zip((2, 8, 64, 256), times, strict=True)]
    assert falling(by_load) == [(2, 3), (8, 3), (64, 0), (256, 0)]
    assert all(falling(by_load)[first:] == falling(by_load[first:]) for first in range(4))
    expert = Depths(Load(each=1), 1, {1: 1.0, 2: 1.3})
    assert falling([expert, *by_load]) == [(1, 1), *falling(by_load)]


def test_schedules_keep_a_depth_that_loses_little() -> None:
    times = [{2: 1.0, 3: 1.0}, {2: 1.015, 3: 1.0}, {2: 1.0}, {2: 1.0, 3: 1.005}, {2: 1.02, 3: 1.0}]
    by_load = [Depths(Load(each=rows), rows, at) for rows, at in zip((1, 4, 16, 64, 128), times, strict=True)]
    assert {depth for _, depth in falling(by_load)} == {2}
    assert by_load[1].beside(3) == by_load[1].text
    assert by_load[1].beside(2) == "2 planned; 3 fastest"
    now = Depths(Load(each=8), 8.0, {2: 1.0, 3: 1.015}, present=3)
    assert [now.beside(depth) for depth in (3, 2)] == ["2 and 3 level; now 3: no change needed", "2 and 3 level"]


def test_a_goal_is_met_where_its_whole_range_is() -> None:
    values = {"tpot_p90_s": 0.012, "ttft_p90_s": 0.3, "overload": 0.0}
    ranges = Ranges(values, values | {"tpot_p90_s": 0.0101}, Errors((0.9, 1.2), ANY, "estimated steps"))
    row: Any = SimpleNamespace(metrics={
        "tpot_p90_s": Interval(0.01, 0.009, 0.011), "ttft_p90_s": Interval(0.2, 0.0, 0.4)})  # fmt: skip
    goals = parse_slo(["tpot_p90=13ms,tpot_p90=11.5ms,tpot_p90=8ms,ttft_p90=250ms,ttft_p90=1s"])
    assert [goal.line.partition(": ")[2] for goal in goals_reached(goals, row, ranges)] == [
        "met, 10 ms (9 .. 12)", "at its edge, 10 ms (9 .. 12)", "missed, 10 ms (9 .. 12)", "at its edge, 200 ms",
        "met, 200 ms",
    ]  # fmt: skip


def test_a_range_without_width_is_its_value_alone() -> None:
    of_one, of_two = Sample(({"ttft_s": 0.03339},)), Sample(({"load": 0.99}, {"load": 0.8}))
    assert ranged("TTFT", of_one.interval("ttft_s"), "ms", 1e3) == "TTFT 33.39 ms"
    assert with_ends([of_one.interval("ttft_s")])[0]["low"] is None
    assert ranged("load", of_two.interval("load"), "") == "load 0.895 (0 .. 1)"
    assert ranged("", Interval(1687, 1460, 12345), "tokens/s") == "1687 tokens/s (1460 .. 12300)"


def test_a_range_above_its_value_says_so() -> None:
    of, values = Interval(0.1, 0.09, 0.11), {"ttft_s": 0.1, "overload": 0.0}
    known = Ranges(values, values, Errors((0.9, 1.2), (1.15, 1.9), "dense models on Blackwell")).around("ttft_s", of)
    assert ranged("TTFT", known, "ms", 1e3) == "TTFT 100 ms (up to 190)"


def test_commands_have_one_depth_for_every_batch() -> None:
    (_, head), (_, small) = candidates(TARGET, HEAD), candidates(TARGET, "llama-3.2-1b")
    schedule = make_schedule(head, BY_LOAD)
    assert schedule is not None
    assert "at a target (simulated at 1, 8, 32, 128; elsewhere as at the nearest" in schedule.text
    (less,), (most,) = (schedule_lines(Deployment(head, 1, depth), schedule, depth) for depth in (3, 5))
    assert "in the command, with its largest depth as num_speculative_tokens; this load gets 3" in less
    assert most.endswith("; in the command")
    commands = server_commands(head, 3, "8 in flight", schedule)
    vllm, sglang = (shlex.split(command, comments=True) for command in commands)
    config = json.loads(vllm[-1])
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 16, 5], [17, 64, 3], [65, 1024, 0]]
    assert config["num_speculative_tokens"] == 5
    assert json.loads(sglang[1]) == {str(first): {"candidate_steps": [depth]} for first, _, depth in schedule.table}
    assert sglang[2:6] == [">", "k.json", "&&", "python"]
    assert all("limits as planned for 8 in flight" in command for command in commands)
    assert "adaptive" not in server_commands(small, 3, "", schedule)[1]  # SGLang changes the depth of heads alone
    assert [command.partition(" or newer")[0].rpartition(" ")[2] for command in commands] == ["0.24", "0.5.14"]
    assert make_schedule(head, BY_LOAD[:2]) is None


def test_neighbouring_spans_of_a_schedule_differ() -> None:
    (_, head) = candidates(TARGET, HEAD)
    schedule = make_schedule(head, [(0.05, 2), (0.34, 3), (0.9, 2), (2.7, 2), (7.0, 0)])
    assert schedule is not None
    assert schedule.table == [[1, 4, 2], [5, 1024, 0]]
    assert make_schedule(head, [(0.05, 2), (0.34, 3), (0.9, 2)]) is None


def test_acceptance_falls_at_every_position() -> None:
    star = scenario_of("star", {"drafters.depth": 3, "acceptance": {"model": "geometric", "beta": 0.7}})
    lower = accepting(star, -0.1).acceptance
    assert isinstance(lower, PerPosition)
    assert np.allclose(survival(lower, 3), survival(Geometric(0.6), 3))
    assert np.allclose(survival(accepting(star, 1.0).acceptance, 3), 1.0)  # type: ignore[arg-type]


def test_a_range_holds_slow_steps_and_poor_drafts_or_is_not_known() -> None:
    value, slow, poor = Interval(10.0, 9.9, 10.1), {"tpot_s": 13.0, "overload": 0.0}, {"tpot_s": 14.0}
    one = Ranges(slow, poor, Errors((0.9, 1.3), ANY, "steps")).around("tpot_s", value)
    assert (one.low, one.high) == pytest.approx((9.0, 15.0))
    for ranges in (
        Ranges(slow, poor, Errors((0.7, 1.3), ANY, "steps")),  # wider than a factor of two
        Ranges(slow | {"overload": 1.0}, poor, Errors((0.9, 1.3), ANY, "steps")),
    ):
        assert ranges.around("tpot_s", value).high == math.inf
    nothing = dict.fromkeys(slow, 0.0)
    assert Ranges(nothing, nothing, Errors((0.9, 1.3), ANY, "steps")).around("tpot_s", Interval(0, 0, 0)).high == 0


def test_counted_acceptance_is_lower_by_chance_alone() -> None:
    server = Server(TARGET, HEAD, "vllm", "m", {"draft": 1.5}, requests=2500)
    (plain, head), (_, stated) = (
        candidates(TARGET, HEAD, acceptance=said, server=server, scenario=scenario_of("star", {"drafters.depth": 3}))
        for said in ((), ("0.7",))
    )
    counted = "0.02 lower by chance in 2500 equally long requests, other texts aside"
    assert lower(Deployment(head, 1, 3)) == (0.02, counted)
    for fleet in (Deployment(head, 1, 4), Deployment(stated, 1, 3), Deployment(plain, 1, 0)):
        assert lower(fleet) == (0.1, "0.1 lower")


def test_a_fit_narrows_what_is_less_well_known() -> None:
    server = Server(TARGET, HEAD, "vllm", "m", {"draft": 1.5})
    plain, head = candidates(TARGET, HEAD, server=server)
    head = replace(head, base=plain.base)
    steps, drafts = slowest(Deployment(head, 1, 3), head.base)[1:]
    assert steps == drafts, "their host time is fitted"
    now = replace(plain, server=replace(server, draft=""))
    for one, of in ((head, "servers fitted"), (now, "servers fitted"), (plain, "mixtures of")):
        assert errors_of(one) == RUNS["dense", "h100", "h200"]
        assert errors_of(replace(one, target="gpt-oss-20b@h200")).of.startswith(of)
    assert errors_of(replace(plain, server=replace(server, engine="sglang"))).of == "SGLang's servers"


def test_errors_are_those_of_measured_runs_where_there_are_some() -> None:
    places = (TARGET, "gpt-oss-20b@h200", "llama-3.1-8b@a100-80gb", "llama-3.1-8b@l4")
    of = [errors_of(candidates(place)[0]) for place in places]
    assert of[:2] == [RUNS["dense", "h100", "h200"], RUNS["mixture", "h100", "h200", "b200", "b300"]]
    assert [one.of for one in of[2:]] == ["estimated steps", "steps on devices with assumed efficiencies"]
    assert of[2].ttft == of[3].ttft == ANY
    assert of[3].steps[1] > WIDEST * of[3].steps[0]
