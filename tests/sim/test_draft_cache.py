"""Drafters elsewhere that keep what they have read, and a router that looks for it."""

from itertools import pairwise
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.route import LongestPrefix, ShortestQueue
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay, replay_stations
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.build import drafter_station, stations
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate
from tests.helpers.stars import star

BLOCK = 16
TALKS = {"conversations": {"turns": {"low": 2, "high": 4}, "think_s": 0.05}}


def elsewhere(cached: bool = True, workload: dict[str, Any] | None = None, **drafters: Any) -> Scenario:
    """Four targets of one drafter that reads a thousand tokens in a second."""
    profile: dict[str, Any] = {key: {"base_s": 0.01} for key in ("verify", "decode", "verify_prefill")}
    profile |= {"draft": {"base_s": 0.004}, "draft_prefill": {"per_token_s": 1e-3}, "link": {"latency_s": 0.001}}
    lengths = {"requests": 48, "prompt_tokens": {"low": 20, "high": 60}, "new_tokens": {"low": 5, "high": 30}}
    return star(
        seed=0, profile=profile, acceptance={"beta": 0.7}, verifiers={"count": 4}, measure={"warm_up_share": 0.0},
        drafters={"depth": 5 if "overlap" in drafters else 3, "prefix_cache": cached} | drafters,
        workload=lengths | (TALKS if workload is None else workload),
    )  # fmt: skip


def openings(run: Run) -> pd.DataFrame:
    """The first draft of each session: its request, and the tokens of its prefix that were computed and found."""
    rows = run.frame()[lambda rows: rows.station.str.startswith("drafter")]
    asked = rows[(rows.event == "draft-request") & rows.flag].set_index(["tag", "request", "epoch"])
    read = rows[(rows.event == "start") & (rows.kind == "prefill")].set_index(["tag", "request", "epoch"])
    asked["computed"] = read.tokens.reindex(asked.index).fillna(0).astype(int)
    asked["found"] = asked.base - 1 - asked.computed
    assert (read.base == asked.found.reindex(read.index)).all()
    return asked.reset_index().sort_values("request")


def test_a_session_that_returns_finds_all_that_its_drafter_knew() -> None:
    """Whole blocks of the text at the last request of the turn before; what the last round adds it never learns."""
    cached, plain = (simulate(elsewhere(of)) for of in (True, False))
    turns = list(streams_of(resolve(cached.header.scenario)).values())
    pairs = [pair for requests in turns for pair in pairwise(requests)]
    before = {request.number: earlier.number for earlier, request in pairs if request.identity}
    rows = cached.frame()
    known = rows[(rows.event == "draft-request") & (rows.station == "drafter")].groupby("request").base.max()
    opened = openings(cached).set_index("request").found
    assert len(before) > 20
    for number in range(48):
        assert opened[number] == (known[before[number]] // BLOCK * BLOCK if number in before else 0)
    assert (openings(plain).found == 0).all()
    assert measure(cached)["throughput"].value > 1.1 * measure(plain)["throughput"].value
    assert replay(cached) == replay(plain) == []


@pytest.mark.parametrize(
    "drafters", [{}, {"overlap": "ahead"}, {"admit": {"policy": "within-memory", "kv_tokens": 700}}]
)
def test_the_hit_share_is_what_sessions_find_of_what_they_need(drafters: dict[str, Any]) -> None:
    """A session that is refused needs nothing."""
    load = {"shared": {"tokens": 64, "groups": 3}, "arrivals": {"process": "poisson", "per_s": 40}}
    run = simulate(elsewhere(True, load, **drafters))
    drafts = run.frame()[lambda rows: (rows.event == "start") & (rows.kind == "draft")][["tag", "request"]]
    opened = openings(run).merge(drafts.drop_duplicates())
    assert (len(opened) < 48) == ("admit" in drafters)
    share = opened.found.sum() / (opened.base - 1).sum()
    assert measure(run)["drafter_prefix_hit_share"].value == pytest.approx(share)
    assert 0.1 < share < 1
    assert "drafter_prefix_hit_share" not in measure(simulate(elsewhere(False)))


def test_texts_of_their_own_take_the_time_of_today() -> None:
    alone, plain = (simulate(elsewhere(cached, {})) for cached in (True, False))
    assert alone.digest() == plain.digest()


@settings(max_examples=15, deadline=None)
@given(
    room=st.integers(250, 2500), batch=st.booleans(), ahead=st.booleans(), route=st.sampled_from(["", "round-robin"]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_every_drafter_replays_and_frees_all_blocks(room: int, batch: bool, ahead: bool, route: str, seed: int) -> None:
    """With little room sessions are refused, and what others would have found is lost."""
    drafters: dict[str, Any] = {"admit": {"policy": "within-memory", "kv_tokens": room}}
    drafters |= {"overlap": {"policy": "ahead"}} if ahead else {"group": "batch"} if batch else {}
    drafters |= {"route": route, "count": 2} if route and not ahead else {}
    shared = {"shared": {"tokens": 40, "groups": 2}} | TALKS
    scenario = msgspec.structs.replace(elsewhere(True, shared, **drafters), seed=seed)
    run = simulate(scenario)
    fresh = stations(resolve(run.header.scenario))
    assert replay_stations(run, fresh) == []
    for drafter in fresh.values():
        if isinstance(drafter, DrafterStation):
            assert drafter.cache is not None
            cache = drafter.cache
            assert (cache.free, cache.texts, cache.journal, sum(cache.users)) == (room // BLOCK, {}, [], 0)


def test_less_room_finds_less() -> None:
    load = {"shared": {"tokens": 64, "groups": 12}, "streams": 4}
    rooms = [{"admit": {"policy": "within-memory", "kv_tokens": tokens}} for tokens in (660, 900, 1200)] + [{}]
    found = [openings(simulate(elsewhere(True, load, **room))).found.sum() for room in rooms]
    streams = streams_of(resolve(elsewhere(True, load | {"streams": 48}))).values()
    groups = {first.identity[0] for first, *_ in streams}
    assert found == sorted(found)
    assert found[0] < found[-1] == (48 - len(groups)) * 64


def test_room_for_all_texts_is_room_without_end() -> None:
    for room in (50_000, 10**12):
        scenario = elsewhere(True, admit={"policy": "within-memory", "kv_tokens": room})
        assert simulate(scenario).digest() == simulate(elsewhere()).digest()
        cache = drafter_station(resolve(scenario)).cache
        assert cache is not None
        assert cache.limit == 0


def grouped(groups: int, streams: int = 1, **drafters: Any) -> Run:
    """Prompts that begin with one of so many texts of 160 tokens, at three drafters."""
    load = {"shared": {"tokens": 160, "groups": groups}, "requests": 60, "streams": streams}
    return simulate(elsewhere(True, load, **({"count": 3} | drafters)))


def test_a_group_for_each_drafter_finds_all_hits() -> None:
    """Only the first request of a group pays, with requests one by one, or as many as groups and by texts alone."""
    for streams, beta in ((1, 1.0), (3, 0.0)):
        opened = openings(grouped(3, streams, route={"policy": "longest-prefix", "beta": beta}))
        assert (opened.found == 0).sum() == 3
        assert opened[opened.found > 0].found.eq(160).all()
    assert (openings(grouped(3, route="round-robin")).found == 0).sum() == 3 * 3  # each drafter reads each text


def test_a_long_queue_outweighs_a_prefix() -> None:
    """All prompts begin alike: by texts alone one drafter gets all of them."""
    at = {}
    for beta in (0.0, 1.0, 1e9):
        run = grouped(1, 12, route={"policy": "longest-prefix", "beta": beta})
        at[beta] = openings(run).groupby("station").size()
        assert replay(run) == []
    assert list(at[0.0]) == [60]
    assert len(at[1.0]) == len(at[1e9]) == 3
    assert at[1e9].min() >= at[1.0].min() > 5


@given(
    queues=st.lists(st.integers(0, 9), min_size=2, max_size=5), home=st.integers(0, 1), turn=st.integers(0, 9),
    cached=st.integers(0, 1),
)  # fmt: skip
def test_the_rule_is_longest_prefix_at_equal_queues(queues: list[int], home: int, turn: int, cached: int) -> None:
    shares = [float(place == cached) for place in range(len(queues))]
    assert LongestPrefix().choose(home, [3] * len(queues), turn, shares) == cached
    least = LongestPrefix(beta=1e9).choose(home, queues, turn, shares)
    assert queues[least] == queues[ShortestQueue().choose(home, queues, turn)]
    # Twice the mean outweighs a whole text, and no less does.
    mean = sum(queues) / len(queues)
    taken = LongestPrefix().choose(home, queues, turn, shares)
    if taken != cached:
        assert (queues[cached] - min(queues)) / max(1.0, mean) >= 1.0 - 1e-9


def test_others_refuse_the_key() -> None:
    with pytest.raises(InputError, match=r"drafters\.prefix_cache makes this another fleet"):
        predict(elsewhere())
