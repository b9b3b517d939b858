"""Links of a scenario: emulated in memory and over loopback, with the delays of the simulation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from specfleet.calibration.run import pair_of
from specfleet.engine.launch.serve import serve
from specfleet.engine.net.actions import Deliver
from specfleet.engine.net.frames import due_of, pack, parse, stamped
from specfleet.engine.net.links import MAX_HELD_S, StatedLinks, stated_links
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.faults import Fault, LinkFault
from specfleet.fleet.scenario.links import holds_links, linked_pairs, ways_of
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Refusal
from specfleet.fleet.times.durations import one_way_s
from specfleet.fleet.times.step import Step
from specfleet.sim.run import simulate
from tests.fakes.network import FakeNetwork
from tests.helpers.marks import slow
from tests.helpers.stars import star
from tests.helpers.toy_fleets import ToyFleet
from tests.helpers.toys import check_texts

JITTER = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.5, 1.5]}
LINK = {"latency_s": 0.02, "bandwidth_bytes_per_s": 1e5, "spread": JITTER}
REPLAYED = {"kind": "replayed"}
EXACT_S = 1e-9
TOPOLOGIES: list[dict[str, dict[str, Any]]] = [
    {"verifiers": {"count": 3}},
    {"drafters": {"count": 3}, "verifiers": {"late": "wait"}},
    {"drafters": {"overlap": {"policy": "ahead", "busy": True}}},
    {"drafters": {"count": 2, "route": "round-robin"}, "verifiers": {"count": 3}},
]


def toy(**tables: Any) -> Scenario:
    """A fleet of toys with a described link."""
    content: dict[str, Any] = {
        "name": "toy", "link": LINK, "workload": {"requests": 6, "prompt_tokens": 8, "new_tokens": 12},
    }  # fmt: skip
    return make_scenario(content | tables)


def run_toy(scenario: Scenario, seed: int, faults: Sequence[Fault], way_s: float) -> Run:
    """Run it in virtual time over a transport with a delay of at least `way_s`."""
    fleet, rng = resolve(scenario), np.random.default_rng(seed)
    network = FakeNetwork(seed, way_s, faults)

    def seconds_of(step: Step) -> float:
        return 0.0 if step.kind == "route" else float(rng.uniform(0.001, 0.02))

    toys = ToyFleet(fleet, network, seconds_of)
    toys.start()
    assert network.run(600.0, lambda: toys.finished), f"seed {seed} hangs"
    network.run(network.now_s + 0.2, lambda: False)
    check_texts(fleet, toys.outputs)
    run = make_run(scenario, "engine", toys.log, fleet)
    assert replay(run) == []
    return run


def ways_s(run: Run) -> list[float]:
    """Delays of messages between stations; a router's views have no link."""
    ways = playback_of(run).ways_s
    return [time_s for (_, kind, *_), of_message in ways.items() if kind != "View" for time_s in of_message]


# --- in memory ---


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(TOPOLOGIES), st.booleans())
def test_no_message_arrives_before_its_stated_time(seed: int, tables: dict[str, dict[str, Any]], late: bool) -> None:
    in_order = "overlap" in tables.get("drafters", {})  # drafting ahead needs the order, as over TCP
    faults = [LinkFault("reorder", 0.3, 0.05)] if late and not in_order else []
    run = run_toy(toy(**tables), seed, faults, way_s=0.001)
    times_s = ways_s(run)
    assert len(times_s) > 10
    assert min(times_s) >= 0.5 * LINK["latency_s"] - EXACT_S


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(TOPOLOGIES), st.sampled_from([0.0, 0.001, 0.0099]))
def test_transport_time_is_part_of_the_stated_time(seed: int, tables: dict[str, dict[str, Any]], way_s: float) -> None:
    run = run_toy(toy(**tables, link={"latency_s": 0.02}), seed, (), way_s)
    assert ways_s(run) == pytest.approx([0.02] * len(ways_s(run)), abs=EXACT_S)


@pytest.mark.parametrize("drafter", [None, 1])
def test_one_way_delays_are_drawn_as_in_the_simulation(drafter: int | None) -> None:
    """Both ends of a link draw their own delays, so each direction has its own numbers, from the scenario's seed."""
    fleet = resolve(toy(drafters={"count": 2}, verifiers={"count": 4}))
    sources = ways_of(linked_pairs(fleet, streams_of(fleet)), sources_of(fleet.seed).links)
    link = fleet.link(3, 1)
    way_s = one_way_s(link.time, sources[3, 1].up if drafter is None else sources[3, 1].down)
    drawn_s = [way_s(size) for size in range(5)]
    message = DraftRequest(3, 3, 1, 9) if drafter is None else Draft(3, 3, 1, 9, 5)
    links = StatedLinks(fleet, drafter)
    assert [links.due_s(message, size, 100.0 * size) - 100.0 * size for size in range(5)] == pytest.approx(drawn_s)
    assert len(set(drawn_s)) == 5


@given(st.lists(st.tuples(st.floats(0, 0.05), st.integers(0, 5000)), min_size=2, max_size=30), st.integers(0, 99))
def test_messages_of_a_way_keep_their_order(sent: list[tuple[float, int]], seed: int) -> None:
    links = StatedLinks(resolve(toy(seed=seed)), drafter=0)
    left_s, dues_s = 0.0, []
    for after_s, size in sent:
        left_s += after_s
        dues_s.append(links.due_s(Draft(0, 0, 1, 9, 5), size, left_s))
        assert dues_s[-1] >= left_s + 0.5 * LINK["latency_s"] + size / LINK["bandwidth_bytes_per_s"]
    assert dues_s == sorted(dues_s)


def test_messages_of_a_stream_keep_their_order() -> None:
    """A refusal after a lost connection follows the draft before it."""
    links = StatedLinks(resolve(toy()))
    (draft,) = links.keep([Deliver(Draft(0, 0, 1, 9, 5))], due_s=10.5, now_s=10.0)
    refusal, other = links.keep([Deliver(Refusal(0, 0, "gone")), Deliver(Refusal(1, 1, "gone"))], 0.0, 10.2)
    assert isinstance(draft, Deliver)
    assert isinstance(refusal, Deliver)
    assert draft.after_s == pytest.approx(0.5)
    assert refusal.after_s == pytest.approx(0.3)
    assert other == Deliver(Refusal(1, 1, "gone"))


@pytest.mark.parametrize("due_s", [0.0, 9.0, 10.0 + 2 * MAX_HELD_S, float("inf"), float("nan"), -1.0])
def test_a_past_or_absurd_due_time_holds_nothing(due_s: float) -> None:
    frame = stamped(pack(Leave(0, 0)), due_s)
    kept = StatedLinks(resolve(toy())).keep([Deliver(Leave(0, 0))], due_of(frame), 10.0)
    assert kept == [Deliver(Leave(0, 0))]


def test_a_due_time_changes_nothing_else_of_a_frame() -> None:
    frame = pack(DraftRequest(0, 0, 1, 9))
    assert parse(stamped(frame, 12.5)) == parse(frame)
    assert len(stamped(frame, 12.5)) == len(frame)
    assert (due_of(frame), due_of(stamped(frame, 12.5)), due_of(b"")) == (0.0, 12.5, 0.0)


# --- which links are emulated ---


@pytest.mark.parametrize(
    ("tables", "emulated"),
    [
        ({}, False),
        ({"link": {"latency_s": 0.01}}, True),
        ({"link": {"latency_s": 0.0}}, False),
        ({"verifiers": {"tiers": [{"first": 2, "link": {"latency_s": 0.01}}]}}, True),
        ({"profile": {"link": {"latency_s": 0.01}}}, False),  # of hardware that is not used here
        ({"profile": {"link": {"latency_s": 0.01}}, "drafters": REPLAYED, "verifiers": REPLAYED}, True),
        ({"profile": {"link": {"latency_s": 0.01}}, "verifiers": REPLAYED}, False),
        (
            {
                "profile": {"link": {"latency_s": 0.01}, "provenance": {"host": "this one"}},
                "drafters": REPLAYED,
                "verifiers": REPLAYED,
            },
            False,
        ),
    ],
)
def test_only_described_links_are_emulated(tables: dict[str, Any], emulated: bool) -> None:
    scenario = star(**tables)
    assert holds_links(resolve(scenario)) is emulated
    assert (stated_links(resolve(scenario)) is not None) is emulated
    apart = replace(resolve(scenario), one_clock=False)
    assert not holds_links(apart), "nodes on hosts of their own have the links between those"
    if scenario.drafters.kind != "replayed":
        assert not holds_links(resolve(pair_of(scenario, prompts=1))), "a calibration measures the links of its host"


# --- over processes ---

PROFILE = {"draft": {"base_s": 0.02}, "verify": {"base_s": 0.1, "spread": JITTER}, "vocabulary": 50}


def replayed(**tables: Any) -> Scenario:
    """Replayed stations on a link of some 30 ms each way."""
    content: dict[str, Any] = {
        "profile": PROFILE, "link": {"latency_s": 0.03, "bandwidth_bytes_per_s": 1e5, "spread": JITTER},
        "drafters": REPLAYED, "verifiers": REPLAYED | {"count": 2},
        "workload": {"requests": 2, "prompt_tokens": 10, "new_tokens": 40},
    }  # fmt: skip
    for name, table in tables.items():
        content[name] = content.get(name, {}) | table if isinstance(table, dict) else table
    return star(**content)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        slow({"drafters": {"count": 2}, "verifiers": {"count": 1, "late": "wait"}}),
        slow({"drafters": {"count": 2, "route": "round-robin"}}),
        slow({"workload": {"temperature": 1.0}}),
    ],
)
def test_messages_between_processes_take_their_stated_time(tables: dict[str, Any]) -> None:
    run = serve(replayed(**tables)).run
    assert replay(run) == []
    times_s = np.array(ways_s(run))
    assert times_s.min() >= 0.5 * 0.03 - EXACT_S
    longest_s = 1.5 * 0.03 + run.frame().payload_bytes.max() / 1e5
    assert np.mean(times_s <= longest_s + EXACT_S) > 0.9  # except for delays by this host


def test_waits_of_replayed_processes_match_the_simulation() -> None:
    """All times are given: the difference is the time of this host's processes between steps, some 0.2 ms of 20."""
    scenario = replayed(
        verifiers={"count": 4}, workload={"requests": 4}, link={"latency_s": 0.01, "spread": "constant"}
    )
    run, simulated = measure(serve(scenario).run), measure(simulate(scenario))
    assert simulated["wait_s"].value > 0.002
    assert run["wait_s"].value == pytest.approx(simulated["wait_s"].value, abs=0.005)
    assert run["rounds_per_s"].value == pytest.approx(simulated["rounds_per_s"].value, rel=0.1)
