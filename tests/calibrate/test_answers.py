"""Laws from answers alone: simulated servers whose laws are known, seen only by when their tokens come."""

from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

from specfleet.calibration.answers import gaps_of, mean_error
from specfleet.calibration.assemble import profile_of_target
from specfleet.calibration.loops import depths_of, loop_of, rows_of, servers_of
from specfleet.engine.outside.answers import Answer, Answers, log_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure, window_of
from specfleet.fleet.records.metrics.steady import relaxation_s
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.sim.run import simulate

PROFILE: dict[str, Any] = {
    "name": "known",
    "draft": {"per_token_s": 0.001, "per_row_token_s": 0.0002},
    "verify": {"base_s": 0.005, "per_context_token_s": 1e-5, "per_row_s": 0.001},
    "decode": {"base_s": 0.002, "per_context_token_s": 2e-5, "per_row_s": 0.0005},
    "verify_prefill": {"base_s": 0.004, "per_token_s": 1e-4, "per_row_token_s": 1e-4},
    "acceptance": {"model": "geometric", "beta": 0.7},
}
SCENARIO = make_scenario(
    {
        "name": "served", "profile": PROFILE, "drafters": {"place": "target", "depth": 4},
        "verifiers": {"max_num_seqs": 8}, "workload": {"prompt_tokens": {"low": 32, "high": 128}, "new_tokens": 96},
    }
)  # fmt: skip


def answered(run: Run, apart_s: float = 0.0) -> Run:
    """Return what a client sees of a run: the rounds of each request, by when the step and its draft end.

    - `apart_s`: between the tokens of a step's rows, the newest request last.
    """
    rows = run.frame()
    joins = rows[rows.event == "join"].set_index("request").time_s
    done = rows[(rows.event == "done") & rows.kind.isin(["prefill", "verify", "decode"])]
    answers = [
        Answer(number, joins[number], tuple(zip(own.time_s + apart_s * number, own.accepted + 1, strict=True)))
        for number, own in done.groupby("request")
    ]
    fleet = run.header.fleet
    seen = make_run(run.header.scenario, "engine", log_of(streams_of(fleet), Answers(tuple(answers), {})), fleet)
    return msgspec.structs.replace(seen, header=msgspec.structs.replace(seen.header, steps=False))


def test_laws_of_answers_predict_other_rows_and_depths() -> None:
    loops = [
        loop_of(SCENARIO, rows, depth, seed)
        for seed, rows in product((0, 1), rows_of(SCENARIO))
        for depth in depths_of(SCENARIO)
    ]
    profile = profile_of_target(SCENARIO, [answered(simulate(loop)) for loop in loops])
    assert profile.overhead.own.target.after.mean_s == 0
    for rows, depth in ((1, 4), (2, 3), (6, 4), (6, 0)):
        cell = loop_of(SCENARIO, rows, depth, 7)
        cell = change_scenario(cell, {"acceptance": {"model": "geometric", "beta": 0.7}})
        ours, theirs = (measure(simulate(one)) for one in (change_scenario(cell, {"profile": profile}), cell))
        for name in ("throughput", "tpot_s"):
            assert ours[name].value == pytest.approx(theirs[name].value, rel=0.03), (rows, depth, name)


@pytest.mark.parametrize("spread", ["constant", "exponential"])
def test_the_context_is_in_a_law_where_it_explains_times(spread: str) -> None:
    for slope_s in (0.0, 2e-5):
        law = {"base_s": 0.002, "per_context_token_s": slope_s, "spread": {"spread": spread}}
        known = change_scenario(SCENARIO, {"profile": PROFILE | {"decode": law}})
        loops = [loop_of(known, rows, 0, rows) for rows in (1, 4)]
        found = profile_of_target(known, [answered(simulate(loop)) for loop in loops]).decode.per_context_token_s
        assert found == pytest.approx(slope_s, rel=0.1) or (spread == "exponential" and found == 0)


@pytest.mark.parametrize("depths", [(4, 0), (4,)])
def test_a_server_of_one_draft_length_has_drafts_within_verification(depths: tuple[int, ...]) -> None:
    loops = [
        loop_of(SCENARIO, rows, depth, seed) for seed, rows in product((0, 1), rows_of(SCENARIO)) for depth in depths
    ]
    profile = profile_of_target(SCENARIO, [answered(simulate(loop)) for loop in loops])
    assert profile.draft.mean_s(4, 100) == 0
    assert ("decode" in profile.sources, "draft" in profile.sources) == (0 not in depths, True)
    for rows, depth in ((1, 4), (6, 4), *(((6, 0),) if 0 in depths else ())):
        cell = change_scenario(loop_of(SCENARIO, rows, depth, 7), {"acceptance": {"model": "geometric", "beta": 0.7}})
        ours, theirs = (measure(simulate(one)) for one in (change_scenario(cell, {"profile": profile}), cell))
        assert ours["tpot_s"].value == pytest.approx(theirs["tpot_s"].value, rel=0.03), (rows, depth)


def test_servers_are_named_by_their_draft_lengths() -> None:
    scenario, plain = SCENARIO, change_scenario(SCENARIO, {"drafters.count": 0, "drafters.place": "own"})
    assert servers_of(["http://a", "0=http://b?x=1"], scenario) == {4: "http://a", 0: "http://b?x=1"}
    assert servers_of(["http://a"], plain) == {0: "http://a"}
    for stated, said in (
        (["4=http://a", "http://b"], "drafts 4 tokens, too"),
        (["5=http://a"], "drafts more than the scenario's drafters.depth = 4"),
        (["0=http://a"], "add --server 4=URL"),
    ):
        with pytest.raises(InputError, match=said):
            servers_of(stated, scenario)


def test_a_fit_that_misses_most_times_says_so() -> None:
    assert mean_error(np.array([1.0] * 99 + [0.0])) == pytest.approx(0.01)
    assert mean_error(np.array([1.0] + [1e4] * 99)) > 0.98


def test_open_loads_of_answers_alone_relax_as_slowly_as_with_their_steps() -> None:
    opened = {"workload.requests": 400, "workload.arrivals": {"process": "poisson", "per_s": 18.0}}
    run = simulate(change_scenario(SCENARIO, opened))
    seen, known = (findings_of(one) for one in (answered(run), run))
    relaxed_s = [relaxation_s(findings, window_of(findings)) for findings in (seen, known)]
    assert relaxed_s[0] == pytest.approx(relaxed_s[1], rel=0.3)


def test_prompts_belong_to_the_step_that_read_them() -> None:
    """Also where a server sends the tokens of a step's rows one after the other, and a new row's last."""
    run = simulate(loop_of(SCENARIO, 8, 4, 7))
    at_once, apart = (list(gaps_of(answered(run, apart_s))) for apart_s in (0.0, 2e-5))
    assert [gap[1:] for gap in apart] == [gap[1:] for gap in at_once]
    assert sum(gap.read > 0 for gap in at_once) > 20


@pytest.mark.parametrize(("depth", "kind"), [(0, "chunk"), (4, "draft")])
def test_only_steps_with_tokens_are_rounds(depth: int, kind: str) -> None:
    """Some runs of an engine may have their steps where others have answers alone; both are fitted together."""
    loop = change_scenario(loop_of(SCENARIO, 2, depth, 7), {"verifiers.max_num_batched_tokens": 48})
    stepped = simulate(loop)
    assert (stepped.frame().kind == kind).any()
    ours, theirs = list(gaps_of(stepped)), list(gaps_of(answered(stepped)))
    assert [gap[1:] for gap in ours] == [gap[1:] for gap in theirs]
    assert [gap.time_s for gap in ours] == pytest.approx([gap.time_s for gap in theirs])
