"""Drafters of blocks: S(d) is one pass, in equations, at drafters elsewhere and on the target's device."""

from typing import Any

import pytest
from msgspec.structs import replace

from specfleet.experiments.notes import notes_of
from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers, Workload
from specfleet.fleet.stations.messages import DraftRequest
from specfleet.fleet.stations.payload import sizes_of
from specfleet.fleet.times.mixed import drafting_s
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step import Member, Step
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate

CHAIN = HardwareProfile(
    "p", draft=StepTime(base_s=0.01, per_token_s=0.004, per_context_token_s=1e-6, per_token_context_s=1e-6),
    verify=StepTime(base_s=0.2, per_token_s=0.001), decode=StepTime(base_s=0.2), catch_up_s=0.004,
    provenance={"host": "here"},
)  # fmt: skip
STAR = Scenario("star", profile=CHAIN, acceptance=Geometric(0.7), workload=Workload(requests=400, new_tokens=40))


def star(depth: int = 5, targets: int = 4, profile: HardwareProfile = CHAIN, **drafters: Any) -> Scenario:
    made = Drafters(kind="block", depth=depth)
    return replace(
        STAR, profile=profile, drafters=replace(made, **drafters), verifiers=Verifiers(count=targets, max_num_seqs=1)
    )


def beside(draft: str, kind: str) -> Scenario:
    return star(15, 1, estimate("qwen3-8b@h100", f"{draft}@h100"), place="target", kind=kind)


@pytest.mark.parametrize("depth", [1, 4, 16])
def test_S_is_one_pass_at_any_depth(depth: int) -> None:
    of_block, context = predict(star(depth)), resolve(STAR).lengths.middle
    assert of_block.S_s == pytest.approx(CHAIN.draft.mean_s(1, context))
    assert of_block.N_full == -(-of_block.Z_s // of_block.S_s) + 1
    assert resolve(star(depth)).basis == "assumed"  # of a chain's profile
    assert any("a block takes the time of one of its passes" in note for note in notes_of(star(depth)))


def test_a_star_of_blocks_is_full_where_equation_12_says() -> None:
    found = predict(star())
    per_s = {
        N: measure(simulate(star(targets=N)))["throughput"].value
        for N in (found.N_full // 2, found.N_full, found.N_full + 4)
    }
    few, full, more = per_s.values()
    assert full / few > 1.7
    assert more == pytest.approx(full, rel=0.05)


def test_a_measured_block_keeps_its_law_and_is_no_chain() -> None:
    measured = replace(CHAIN, one_pass=True)
    assert resolve(star(profile=measured)).drafter_times(0).draft == CHAIN.draft
    assert resolve(star(profile=measured)).basis == "measured"
    for kind in ("model", "eagle", "lookup"):
        with pytest.raises(InputError, match=f"drafters.kind = '{kind}': profile 'p' has a drafter of blocks"):
            resolve(star(profile=measured, kind=kind))


@pytest.mark.parametrize(
    ("draft", "kind", "slots", "again"),
    [
        ("dflash-qwen3-8b", "block", 15, 1),
        ("dspark-qwen3-8b", "block", 6, 1),
        ("pard-qwen3-0.6b", "block", 15, 0),
        ("qwen3-0.6b", "model", 1, 0),
        ("eagle3-qwen3-8b", "eagle", 0, 1),
    ],
)
def test_rows_keep_the_places_that_vllm_reserves(draft: str, kind: str, slots: int, again: int) -> None:
    scenario = beside(draft, kind)
    depth = 7 if "dspark" in draft else 15
    side = resolve(replace(scenario, drafters=replace(scenario.drafters, depth=depth))).verifiers
    assert (side.batching.slots, side.batching.lookahead) == (slots, depth)
    assert side.drafts is not None
    assert side.drafts.again == again


def test_a_block_on_the_targets_device_is_one_pass_of_all_rows() -> None:
    """Its time hardly moves with depth until rows and positions reach the ridge; a chain's grows by passes."""

    def draft_s(draft: str, rows: int, depth: int) -> float:
        times = resolve(beside(draft, "model" if draft == "qwen3-0.6b" else "block")).drafter_times(0)
        members = tuple(Member(tag, 0, 0, 600, depth, depth + 1) for tag in range(rows))
        return drafting_s(times, Step(1, "draft", members), [depth] * rows)

    for draft in ("dflash-qwen3-8b", "pard-qwen3-0.6b"):
        assert draft_s(draft, 1, 15) < 1.1 * draft_s(draft, 1, 1)
        assert draft_s(draft, 128, 15) > 2 * draft_s(draft, 128, 1)
    assert draft_s("qwen3-0.6b", 1, 15) > 6 * draft_s("qwen3-0.6b", 1, 1)


def test_hidden_states_travel_to_a_block_drafter_elsewhere() -> None:
    states = {}
    for draft in ("dflash-qwen3-8b", "pard-qwen3-0.6b"):
        fleet = resolve(star(15, 1, estimate("qwen3-8b@h100", f"{draft}@l4")))
        size_of, request = sizes_of(fleet), DraftRequest(0, 0, 0, 0)
        states[draft] = size_of(request, 4) - size_of(request, 0)
    assert states == {"dflash-qwen3-8b": 4 * 5 * 4096 * 2, "pard-qwen3-0.6b": 0}


def test_a_chains_roofline_becomes_one_pass_of_two_positions_a_token() -> None:
    chain, pard = (estimate("qwen3-8b@h100", f"{draft}@h100").draft for draft in ("qwen3-0.6b", "pard-qwen3-0.6b"))
    made = chain.in_one_pass()
    for rows, depth in ((1, 1), (4, 5), (64, 15)):
        theirs = pard.mean_s(depth, 600, rows, depth * (rows - 1))
        assert made.mean_s(depth, 600, rows, depth * (rows - 1)) == pytest.approx(theirs, rel=0.15)
    assert shape_of("pard-qwen3-0.6b").parameters() == shape_of("qwen3-0.6b").parameters()
