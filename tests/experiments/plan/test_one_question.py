"""One question has one answer, however it is asked, and no fleet is loaded to its capacity."""

import re

import pytest

pytest.importorskip("numba")

import specfleet
from specfleet.experiments.plan.deployments import MARGIN, Load, estimates
from specfleet.experiments.plan.trials import simulated
from specfleet.fleet.errors import InputError
from tests.helpers.marks import slow
from tests.helpers.plans import question

LENGTHS = {"workload.prompt_tokens": 100, "workload.new_tokens": 40}
PAIRS = (
    ("llama-3.1-8b@h100", "eagle3-llama-3.1-8b"), ("llama-3.1-8b@h100", "llama-3.2-1b"),
    ("llama-3.1-8b@a100-80gb", "lookup"), ("llama-3.1-8b@l40s", "eagle3-llama-3.1-8b"), ("llama-3.1-8b@l4", "lookup"),
    ("llama-3.1-70b@2xh100", "llama-3.2-1b"), ("llama-3.1-70b@4xh100", "eagle-llama-3-70b"),
    ("llama-3.1-70b@h100:fp8", "lookup"), ("qwen3-32b@2xh100", "qwen3-0.6b"), ("qwen2.5-3b@l4", "qwen2.5-0.5b"),
)  # fmt: skip


@pytest.mark.parametrize("pair", [PAIRS[2], *(slow(pair) for pair in PAIRS[:2] + PAIRS[3:])], ids="-".join)
def test_all_forms_of_a_question_choose_one_fleet(pair: tuple[str, str]) -> None:
    """For as many devices as it takes, of a budget, and beside other loads; at half of a target's capacity and near."""
    target, draft = pair
    shared = {"target": target, "draft": draft, "acceptance": "0.7", "slo": "tpot_mean=1s", "jobs": 1}
    device = target.rpartition("@")[2].partition(":")[0]
    count, _, kind = device.partition("x") if "x" in device else ("1", "", device)
    asked = question("", target, Load(per_s=1e-3), draft)
    capacity = max(one.per_s / one.fleet.replicas for one in estimates(asked)[0])
    for share in (0.5, 0.8, 0.9):
        rate = float(f"{share * capacity:.3g}")
        free = specfleet.plan("star", LENGTHS, arrivals=rate, **shared)
        budget = specfleet.plan("star", LENGTHS, arrivals=rate, devices=f"{3 * int(count)}x{kind}", **shared)
        several = specfleet.plan("star", LENGTHS, arrivals=[rate, 1.01 * rate], **shared)
        assert free.chosen.fleet == budget.chosen.fleet == several.best(free.loads[0])[0].fleet


@pytest.mark.parametrize("in_flight", [1, slow(16)])
def test_all_forms_choose_one_drafter_elsewhere(in_flight: int) -> None:
    asked = {"target": "llama-3.1-70b@4xh100", "draft": "llama-3.2-1b@l40s", "cost": "l40s=0", "acceptance": "0.7"}
    keys = {"drafters.place": "own", "workload.new_tokens": 32}
    forms = ("", "50us"), ("4xh100,1xl40s", "50us"), ("", "26ms")
    plans = [specfleet.plan(None, keys, devices=on, link=at, in_flight=in_flight, jobs=1, **asked) for on, at in forms]
    assert plans[0].chosen.fleet == plans[1].chosen.fleet
    assert len({line.partition(" up to ")[2] for of in plans for line in of.lines if " elsewhere pays" in line}) == 1


@pytest.mark.parametrize(
    ("per_s", "draft", "devices"),
    [(28.0, "eagle3-llama-3.1-8b", 2), slow(24.0, "eagle3-llama-3.1-8b", 1), slow(24.0, "llama-3.2-1b", 1)],
)
def test_a_target_is_not_loaded_to_its_capacity(per_s: float, draft: str, devices: int) -> None:
    """At 28/s a single target has no steady state, whatever the mean of a simulation says."""
    lengths = {"workload.prompt_tokens": 800, "workload.new_tokens": 250}
    for options in ({"target": "llama-3.1-8b@h100"}, {"target": "llama-3.1-8b:bf16", "devices": "3xh100"}):
        found = specfleet.plan(
            None, lengths, draft=draft, acceptance=0.7, arrivals=per_s, slo="tpot_mean=25ms", jobs=1, **options
        )
        assert found.chosen.devices == {"h100": devices}
        limit = r"limit: goals hold up to ([\d.]+)/s; beyond ([\d.]+) requests/s more add little"
        edge = re.search(limit, " ".join(found.lines))
        assert edge is not None
        assert per_s <= float(edge[1]) < float(edge[2])
        alone = re.search(r"depth \d \(1 x llama-3.1-8b@h100 alone: goals hold up to ([\d.]+)/s\): ", found.lines[0])
        assert bool(alone) == (devices > 1 and "devices" not in options)
        assert alone is None or per_s / 2 < float(alone[1]) < per_s


@pytest.mark.parametrize(("target", "draft"), [PAIRS[0], PAIRS[4]])
def test_equations_overstate_capacity_by_no_more_than_the_margin(target: str, draft: str) -> None:
    for one in estimates(question("", target, Load(per_s=1e-3), draft))[0]:
        if one.fleet.replicas == 1 and one.fleet.depth in (0, 2):
            load = Load(in_flight=2 * int(one.curve.rows[-1]))
            served = simulated(one.fleet.scenario(load, 6 * load.in_flight))["throughput"] / 250
            assert (1 - MARGIN) * one.per_s <= served <= 1.03 * one.per_s


def test_more_than_all_devices_carry_is_refused_with_the_margin() -> None:
    with pytest.raises(InputError, match=r"16/s: these devices carry up to about 2\.\d+/s .* margin of 10% kept"):
        estimates(question("2xh100", "llama-3.1-70b:bf16", Load(per_s=16.0)))


def test_a_method_that_carries_too_little_is_left_out_with_its_most() -> None:
    asked = (question("1xh100", "llama-3.1-70b:fp8", Load(per_s=per_s), "eagle-llama-3-70b") for per_s in (0.5, 1.0))
    none, (said,) = (estimates(one)[1] for one in asked)
    assert none == []
    assert re.match(r"left out: eagle-llama-3-70b on the target's device: carries up to about 0\.[5-9]\d+/s", said)
