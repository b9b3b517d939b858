"""Prefill apart from decoding: prompts go to prefill servers, their KV caches over a link to the targets."""

import re
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.facts import devices_of
from specfleet.fleet.scenario.prefill import Prefill
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.step_time import LinkTime
from specfleet.sim.alone import plain_tpot_s
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate

STEP = {"base_s": 0.004, "per_token_s": 1e-5}
TOKEN_BYTES, DRAFT_BYTES, BANDWIDTH = 1000, 100, 1e8
LINK = {"latency_s": 0.002, "bandwidth_bytes_per_s": BANDWIDTH}
SPLIT: dict[str, Any] = {"count": 2, "link": LINK}
HEAD = {"place": "target", "kind": "eagle", "depth": 3}
DRAFTERS: dict[str, dict[str, Any]] = {
    "plain": {"count": 0}, "head": HEAD, "model": HEAD | {"kind": "model"}, "lookup": HEAD | {"kind": "lookup"},
    "apart": {"count": 2, "depth": 3}, "routed": {"count": 2, "route": "shortest-queue"},
    "ahead": {"count": 3, "overlap": "ahead"}, "star": {"count": 1, "depth": 3},
}  # fmt: skip


def serving(prefill: dict[str, Any] | None = None, drafts: str = "head", **keys: Any) -> Scenario:
    kv = {"free_bytes": 1e7, "token_bytes": TOKEN_BYTES, "drafter_token_bytes": DRAFT_BYTES}
    profile = {
        "name": "made up", "draft": {"base_s": 0.001}, "verify": STEP, "decode": STEP, "verify_prefill": STEP,
        "draft_prefill": {"base_s": 0.0005, "per_token_s": 1e-6}, "link": {"latency_s": 0.0}, "kv": kv,
    }  # fmt: skip
    workload = {"requests": 60, "prompt_tokens": {"low": 10, "high": 900}, "new_tokens": {"low": 1, "high": 60}}
    return make_scenario({
        "profile": profile, "drafters": DRAFTERS[drafts], "measure": {"warm_up_share": 0.0},
        "acceptance": {"model": "geometric", "beta": 0.7}, "workload": workload | keys.get("workload", {}),
        "verifiers": {"count": 3} | ({"prefill": prefill} if prefill else {}) | keys.get("verifiers", {}),
    })  # fmt: skip


def test_a_speedup_is_over_targets_that_draft_nothing() -> None:
    """Also where a prefill server drafts for the first round."""
    scenario = serving(SPLIT | {"first_round_drafts": True}, workload={"streams": 6, "requests": 12})
    assert plain_tpot_s(scenario) == plain_tpot_s(serving(SPLIT, workload={"streams": 6, "requests": 12})) > 0


def one_request(prefill: dict[str, Any], drafts: str = "plain", new_tokens: int = 10) -> Run:
    lengths = {"requests": 1, "prompt_tokens": 500, "new_tokens": new_tokens}
    return simulate(serving({"link": LINK} | prefill, drafts, workload=lengths, verifiers={"count": 1}))


def tokens(run: Run) -> dict[int, int]:
    """Return the committed tokens of each request."""
    requests = findings_of(run).requests
    assert requests.finished.all()
    return dict(zip(requests.request.tolist(), requests.tokens.tolist(), strict=True))


@pytest.mark.parametrize("drafts", [*DRAFTERS, "head drafts first", "model drafts first"])
def test_each_request_is_prefilled_once_and_decoded_at_one_target(drafts: str) -> None:
    drafts, _, first = drafts.partition(" ")
    prefill = SPLIT | ({"first_round_drafts": True} if first else {})
    split, unsplit = simulate(serving(prefill, drafts)), simulate(serving(None, drafts))
    assert replay(split) == []
    assert tokens(split) == tokens(unsplit)
    rows = split.frame()
    joins, fed = rows[rows.event == "join"], rows[(rows.event == "start") & rows.kind.isin(["prefill", "chunk"])]
    asked, came = (joins[joins.station.str.startswith(name)].set_index("request") for name in ("prefill", "verifier"))
    at_prefill, at_target = (fed[fed.station.str.startswith(name)] for name in ("prefill", "verifier"))
    assert at_prefill.groupby("request").tokens.sum().to_dict() == asked.tokens.to_dict()
    assert (at_target.tokens == 1).all()  # the first token, which the prefill server has sampled
    assert came.index.tolist() == came.index.unique().tolist()
    assert {*came.index} == {request for request, answer in tokens(split).items() if answer > 1}
    assert (came.payload_bytes == TOKEN_BYTES * asked.tokens[came.index]).all()
    assert rows[rows.kind.isin(["verify", "decode"])].station.str.startswith("verifier").all()
    assert bool(came.accepted.any()) == bool(first)


@pytest.mark.parametrize(
    ("prefill", "drafts", "parts_ms"),
    [  # a link that cannot keep up hides what was computed
        ({}, "plain", (9, 2, 5)),  # the prompt, the latency, 500 tokens of 1,000 bytes
        ({"layers": 10}, "plain", (9, 2, 0.5)),  # the last layer's share
        ({"layers": 10, "link": {"bandwidth_bytes_per_s": BANDWIDTH / 4}}, "plain", (9, 20 - 0.9 * 9)),
        ({}, "head", (9, 2, 5)),
        ({"draft_cache": "sent"}, "head", (9, 0.5 + 0.499, 2, 5.5)),  # the head has a cache of its own
        ({"first_round_drafts": True}, "head", (9, 1 + 0.5 + 0.496, 2, 5)),  # it reads what it does not draft
    ],
)  # fmt: skip
def test_the_first_token_takes_prefill_and_transfer(
    prefill: dict[str, Any], drafts: str, parts_ms: tuple[float, ...]
) -> None:
    run = one_request(prefill, drafts)
    assert measure(run)["ttft_s"].value == pytest.approx(sum(parts_ms) / 1e3)
    assert measure(run)["kv_transfer_s"].value == pytest.approx(sum(parts_ms[1:]) / 1e3)


def test_a_draft_cache_that_is_not_sent_is_computed_at_the_target() -> None:
    at_target_s = {}
    for kept in ("sent", "computed"):
        rows = one_request({"draft_cache": kept}, "head").frame()
        drafts = rows[(rows.station == "verifier.1") & (rows.event == "done") & (rows.kind == "draft")]
        at_target_s[kept] = drafts.duration_s.tolist()
    sent_s, computed_s = at_target_s.values()
    assert computed_s[0] - sent_s[0] == pytest.approx(0.0005 + (500 - 3) * 1e-6)
    assert computed_s[1:] == sent_s[1:]


@given(
    layers=st.integers(1, 8), computing_s=st.floats(0, 2), takes_s=st.floats(0, 2), free_s=st.floats(0, 3)
)  # fmt: skip
def test_layers_leave_one_after_the_other(layers: int, computing_s: float, takes_s: float, free_s: float) -> None:
    now_s, left_s = 2.0, free_s
    for layer in range(layers):
        computed_s = now_s - computing_s * (layers - 1 - layer) / layers
        left_s = max(left_s, computed_s) + takes_s / layers
    prefill = Prefill(link=LinkTime(bandwidth_bytes_per_s=1e3), layers=layers)
    assert prefill.sent_s(1e3 * takes_s, now_s, computing_s, free_s) == pytest.approx(left_s)


def test_prompts_share_the_link_of_their_server() -> None:
    lengths = {"requests": 2, "streams": 2, "prompt_tokens": 500, "new_tokens": 5}
    slow = {"link": {"bandwidth_bytes_per_s": BANDWIDTH / 4}}
    rows = simulate(serving(slow, "plain", workload=lengths)).frame()
    came_s = rows[(rows.event == "join") & (rows.base == 500)].time_s.tolist()
    assert came_s == pytest.approx([0.009 + 0.020, 0.009 + 0.020 + 0.020])  # the second prompt ends at 18 ms


@pytest.mark.parametrize("drafts", ["plain", "head"])
def test_a_target_behind_a_link_without_time_never_starves(drafts: str) -> None:
    load = {"arrivals": {"process": "poisson", "per_s": 30}}
    run = simulate(serving({"count": 1}, drafts, workload=load, verifiers={"count": 1}))
    rows = run.frame()
    prompt_ends = rows[(rows.station == "prefill.1") & (rows.event == "done") & (rows.kind == "prefill")]
    joins = rows[(rows.station == "verifier.1") & (rows.event == "join")].set_index("request").time_s
    assert joins.to_dict() == prompt_ends.set_index("request").time_s[joins.index].to_dict()
    requests = findings_of(run).requests
    last_s = requests.last_s[np.isin(requests.request, joins.index)]
    steps = rows[(rows.station == "verifier.1") & rows.event.isin(["start", "done"])].groupby("step").time_s
    for (_, ended_s), begun_s in pairwise(zip(steps.first(), steps.last(), strict=True)):
        idle_s = begun_s[0] - ended_s
        inside = (joins < begun_s[0]).sum() - (last_s <= ended_s).sum()
        assert idle_s == 0 or inside == 0


def test_a_preempted_request_is_computed_again_at_its_target() -> None:
    load = {"streams": 12, "prompt_tokens": 200, "new_tokens": 100}
    split, roomy = (
        simulate(serving(SPLIT, workload=load, verifiers={"count": 1, "kv_tokens": kv_tokens}))
        for kv_tokens in (1024, 0)
    )
    rows = split.frame()
    again = rows[(rows.station == "verifier.1") & (rows.event == "start") & rows.kind.isin(["prefill", "chunk"])]
    assert (again.tokens > 1).any()
    assert replay(split) == []
    assert tokens(split) == tokens(roomy)


def test_prefill_servers_alone_share_cached_blocks() -> None:
    load = {"shared": {"tokens": 320}, "streams": 4}
    run = simulate(serving(SPLIT, workload=load, verifiers={"prefix_cache": True}))
    assert measure(run)["prefix_hit_share"].value > 0.2
    assert replay(run) == []


def test_users_send_when_their_last_request_has_ended() -> None:
    run = simulate(serving(SPLIT, "plain", workload={"streams": 3, "new_tokens": {"low": 1, "high": 2}}))
    assert set(tokens(run).values()) == {1, 2}
    assert list(playback_of(run).joins_s.values()) == pytest.approx([0.0] * 60)


def test_a_prefill_server_without_a_request_costs_the_simulation_nothing() -> None:
    runs = [simulate(serving(SPLIT | {"count": count}, workload={"streams": 7})) for count in (7, 10**5)]
    assert runs[0].digest() == runs[1].digest()
    assert devices_of(runs[1].header.fleet) == (0, 3 + 10**5)


def test_devices_and_costs_count_prefill_servers() -> None:
    fleet = resolve(serving(SPLIT))
    assert devices_of(fleet) == (0, 3 + 2)
    assert measure(simulate(serving(SPLIT, "plain")))["target_load"].value < 1


def test_what_does_not_read_prefill_servers_says_so() -> None:
    with pytest.raises(InputError, match=re.escape("verifiers.prefill")):
        predict(serving(SPLIT, "star", verifiers={"count": 1, "max_num_seqs": 1}, workload={"requests": 1}))
    unknown = msgspec.structs.replace(serving(SPLIT).profile, kv=None)
    with pytest.raises(InputError, match="bytes of a token's KV cache"):
        resolve(msgspec.structs.replace(serving(SPLIT), profile=unknown))
