"""Laws of a serving target's steps: fitted to its own steps, they give back what made these."""

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from specfleet.calibration.assemble import profile_of_target
from specfleet.calibration.laws import Timed, laws_in
from specfleet.calibration.loops import covering, depths_of, loop_of, recording_loop, rows_of
from specfleet.calibration.measurements import QUICK
from specfleet.calibration.run import bench_of, pair_of
from specfleet.calibration.steadiness import unsteady
from specfleet.cli.entry import app
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.policies.shapes import CHAIN
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import mean_lengths, read_lengths
from specfleet.fleet.times.profile import STEPS, HardwareProfile, read_profile
from specfleet.fleet.times.step import Member, Step
from specfleet.sim.run import simulate

ROW = {"per_row_s": 0.0004, "per_row_context_s": 1e-6, "several_s": 0.0007}
PROFILE: dict[str, Any] = {
    "name": "truth",
    "draft": {"base_s": 0.001, "per_token_s": 0.0008, "per_context_token_s": 1e-6} | ROW,
    "draft_prefill": {"base_s": 0.0008, "per_token_s": 2e-5},
    "verify": {"base_s": 0.004, "per_token_s": 0.0002, "per_row_token_s": 0.0001} | ROW,
    "decode": {"base_s": 0.004, "per_context_token_s": 2e-6} | ROW,
    "verify_prefill": {"base_s": 0.004, "per_token_s": 1e-4, "per_row_token_s": 1e-4, "per_token_context_s": 2e-7},
    "overhead": {"own": {"target": {"queued": {"mean_s": 1e-4}, "after": {"mean_s": 5e-5}}}},
    "acceptance": {"model": "geometric", "beta": 0.7},
}


def scenario_of(**drafters: Any) -> Scenario:
    return make_scenario(
        {
            "name": "served", "profile": PROFILE, "drafters": {"place": "target", "depth": 4} | drafters,
            "verifiers": {"max_num_seqs": 16, "max_num_batched_tokens": 128, "kv_tokens": 2560},
            "workload": {"prompt_tokens": {"low": 32, "high": 192}, "new_tokens": {"low": 16, "high": 128}},
        }
    )  # fmt: skip


def refitted(scenario: Scenario) -> HardwareProfile:
    looped = msgspec.structs.replace(scenario, workload=covering(scenario.workload))
    runs = [
        simulate(loop_of(looped, rows, depth, seed))
        for seed, rows in product((0, 1), rows_of(scenario))
        for depth in depths_of(scenario)
    ]
    return profile_of_target(scenario, runs)


@pytest.mark.parametrize("place", ["own", "target"])
def test_loops_are_as_long_as_texts_that_share_and_share_nothing(tmp_path: Path, place: str) -> None:
    """They read blocks, as the target does, and have room for all rows."""
    sharing = {"workload.shared": {"tokens": 100}, "workload.conversations": {"turns": 3}}
    cached = {"verifiers.prefix_cache": True, "verifiers.kv_tokens": 2560, "drafters.place": place}
    bench = bench_of(change_scenario(scenario_of(), sharing | cached), tmp_path, QUICK)
    assert read_lengths(bench.looped.workload).longest_text == 100 + 3 * (192 + 128)
    for workload in (bench.looped.workload, bench.sampled.workload):
        assert workload.shared is workload.conversations is None
    batching = resolve(bench.looped).verifiers.batching
    assert bench.looped.verifiers.prefix_cache
    if place == "own":
        longest = read_lengths(bench.looped.workload).longest_text + batching.lookahead
        assert batching.kv_blocks >= bench.rows[-1] * -(-longest // batching.block_size)


@pytest.mark.parametrize("drafters", [{}, {"kind": "eagle"}, {"kind": "block"}, {"kind": "lookup"}])
def test_loops_give_back_the_laws_of_their_steps(drafters: dict[str, Any]) -> None:
    """Numbers of rows that no loop had are predicted, with drafts and without."""
    scenario = scenario_of(**drafters)
    profile = refitted(scenario)
    assert profile.measured["steps"]["mixed"]["error"] < 0.01
    assert profile.measured["passes_differ"] < 0.01
    assert profile.overhead.own.target.queued.mean_s == pytest.approx(1e-4, rel=1e-6)
    for rows in (2, 8):
        for depth in (3, 0):
            cell = loop_of(scenario, rows, depth, 7)
            cell = change_scenario(cell, {"acceptance": {"model": "geometric", "beta": 0.7}})
            ours, theirs = (measure(simulate(one)) for one in (change_scenario(cell, {"profile": profile}), cell))
            for name in ("throughput", "tpot_s", "ttft_s"):
                assert ours[name].value == pytest.approx(theirs[name].value, rel=0.01), (rows, depth, name)


@pytest.mark.parametrize("kind", ["lookup", "suffix", "model"])
def test_a_calibration_keeps_what_was_found(kind: str) -> None:
    accepted, found = (2, 0, 4, 0) * 40, (3, 0, 4, 1) * 40
    record = msgspec.to_builtins(Recorded(4, (accepted,), (found,)))
    scenario = change_scenario(scenario_of(kind=kind), {"acceptance": record})
    runs = [simulate(loop_of(scenario, 2, depth, 0)) for depth in depths_of(scenario)]
    kept = profile_of_target(scenario, runs).acceptance
    assert isinstance(kept, Recorded)
    pairs = {pair for two in zip(kept.drafted, kept.sessions, strict=False) for pair in zip(*two, strict=True)}
    assert pairs == (set(zip(found, accepted, strict=True)) if kind != "model" else set())


def test_a_mixture_is_calibrated_as_its_head_and_what_was_found() -> None:
    accepted, found = (2, 0, 7, 0) * 40, (0, 6, 8, 0) * 40
    record = msgspec.to_builtins(Recorded(8, (accepted,), (found,)))
    first = {"kind": "eagle", "depth": 8, "first": {"kind": "suffix", "least": 5}}
    scenario = change_scenario(truth := scenario_of(**first), {"acceptance": record})
    assert depths_of(scenario) == (5, 1, 0)
    loops = [simulate(loop_of(truth, rows, depth, 0)) for rows in (1, 2, 4) for depth in depths_of(truth)]
    profile = profile_of_target(scenario, loops, simulate(recording_loop(scenario, 8)))
    assert isinstance(profile.acceptance, Recorded)
    kept = zip(profile.acceptance.drafted, profile.acceptance.sessions, strict=True)
    assert {pair for two in kept for pair in zip(*two, strict=True)} == set(zip(found, accepted, strict=True))
    here = change_scenario(scenario, {"acceptance": profile.acceptance})
    ours, theirs = (measure(simulate(one)) for one in (change_scenario(here, {"profile": profile}), here))
    assert ours["throughput"].value == pytest.approx(theirs["throughput"].value, rel=0.01)


@pytest.mark.parametrize("rule", ["realign", "same-length"])
def test_loops_give_back_the_laws_of_aligned_rows(rule: str) -> None:
    laws = PROFILE | {"realign": {"base_s": 0.0005, "per_context_token_s": 1e-6, "per_row_s": 1e-4}}
    verifiers = {"max_num_seqs": 4, "aligned": {"policy": rule} | ({"window": 12} if rule == "same-length" else {})}
    lengths = {"requests": 24, "prompt_tokens": {"low": 32, "high": 192}, "new_tokens": {"low": 16, "high": 128}}
    drafters = {"place": "target", "depth": 4}
    scenario = make_scenario(
        {"name": rule, "profile": laws, "drafters": drafters, "verifiers": verifiers, "workload": lengths}
    )
    found = refitted(scenario)
    for name, tokens, context, rows in product(("draft", "verify", "realign"), (2, 5), (60, 200), (1, 4)):
        known, law = getattr(scenario.profile, name), getattr(found, name)
        extent = (tokens, context, rows, tokens * (rows - 1))
        assert law.mean_s(*extent) == pytest.approx(known.mean_s(*extent), rel=1e-6), (name, extent)


def test_laws_hold_at_all_lengths_of_the_workload() -> None:
    """At contexts to 8,192, of which most texts have fewer, and at 1 % noise: on the grid and in between."""
    noise = {"spread": {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.98, 1.02]}}
    truth = {name: law | noise for name, law in PROFILE.items() if name in STEPS}
    long = {
        "profile": PROFILE | truth, "workload.prompt_tokens": {"low": 64, "high": 8064},
        "verifiers.kv_tokens": 0, "verifiers.max_num_batched_tokens": 2048,
    }  # fmt: skip
    scenario = change_scenario(scenario_of(), long)
    found = refitted(scenario)
    grid = {"draft": (1, 2, 4), "verify": (2, 3, 5), "decode": (1,), "verify_prefill": (64, 500, 2048)}
    for name, fed in grid.items():
        known, law = getattr(scenario.profile, name), getattr(found, name)
        for tokens, context, rows in product(fed, (32, 200, 1500, 4096, 8192), (1, 2, 8, 16)):
            extent = (tokens, context, rows if name != "verify_prefill" else 1)
            others = (extent[2] - 1) * tokens
            assert law.mean_s(*extent, others) == pytest.approx(known.mean_s(*extent, others), rel=0.03), (name, extent)


@pytest.mark.parametrize(
    "workload", [{"lengths": "texts.csv"}, {"arrivals": {"process": "trace", "file": "texts.csv"}}]
)
def test_calibrations_have_the_lengths_of_a_file(workload: dict[str, Any], tmp_path: Path) -> None:
    rows = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,40,20\n1,60,40\n"
    (tmp_path / "texts.csv").write_text(rows, encoding="utf-8")
    scenario = make_scenario({"drafters": {"place": "target"}, "workload": workload}, base=tmp_path)
    assert mean_lengths(loop_of(scenario, 2, 4, 7).workload) == (50, 30)
    assert mean_lengths(pair_of(scenario, 3).workload) == (50, 30)


def test_whole_prompts_have_no_context_to_fit() -> None:
    """A drafter reads them before its draft; the few places of the draft would stand in for the fixed time."""
    whole, chunk = (Member(0, 0, 1, base, 5, fed, of_prompt=True) for base, fed in ((129, 128), (192, 64)))
    for member, context in ((whole, 0), (chunk, 134)):
        read = laws_in(Timed(Step(1, "draft", (member,)), (5,), 1.0, 0), CHAIN)["draft_prefill"]
        assert read[:3] == [1, member.behind - 6, context]


def test_a_pass_on_a_slower_host_is_noticed() -> None:
    slower = change_scenario(
        scenario_of(), {"profile": {name: PROFILE[name] | {"base_s": 0.008} for name in ("verify", "decode")}}
    )
    loops = [loop_of(one, 4, 4, seed) for seed, one in enumerate((scenario_of(), slower))]
    assert unsteady(profile_of_target(scenario_of(), [simulate(loop) for loop in loops])) is not None


def test_acceptance_is_that_of_the_loops() -> None:
    profile = refitted(scenario_of())
    rounds = [accepted for text in profile.acceptance.sessions for accepted in text]  # type: ignore[union-attr]
    assert np.mean(rounds) == pytest.approx(sum(0.7**place for place in range(1, 5)), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "lookup"])
def test_commands_calibrate_and_simulate_a_serving_target(tmp_path: Path, kind: str) -> None:
    """No figure is checked here, for that would depend on this host: only that the commands fit together."""
    (tmp_path / "small.toml").write_text(
        f'[drafters]\nplace = "target"\nkind = "{kind}"\ndepth = 3\n[verifiers]\nmax_num_seqs = 2\n'
        "[workload]\nrequests = 4\nprompt_tokens = {low = 16, high = 32}\nnew_tokens = 12\n"
    )
    scenario, profile = str(tmp_path / "small.toml"), tmp_path / "profile.json"
    for command in (
        ["calibrate", "--scenario", scenario, "--quick", "--accept-unsteady", "-o", str(profile)],
        ["simulate", str(tmp_path / "profile.toml"), "-o", str(tmp_path / "sim.parquet")],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    calibrated = read_profile(str(profile), tmp_path)
    assert min(calibrated.verify.mean_s(4, 20), calibrated.decode.mean_s(1, 20)) > 0
    assert calibrated.overhead.own.target.after.mean_s > 0
    assert {"verify", "decode", "prefill"} <= set(calibrated.measured["steps"])
