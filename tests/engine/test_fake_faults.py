"""Nodes on a network in memory that loses, repeats, delays and reorders, and whose nodes stall, die and come back."""

from collections.abc import Callable

import numpy as np
import pytest

from engine.runtime.fake import FakeNetwork, Mishaps
from fleet.records.replay import replay
from fleet.records.run import make_run
from fleet.scenario.reading import make_scenario
from tests.helpers.marks import slow
from tests.helpers.toys import ToyStar, check_texts, target_name, toy_fleet

FLEET = toy_fleet()
END_S = 4.0  # of all mishaps; an undisturbed run takes 0.8 s
MOST_S = 600.0


def scripted(seed: int) -> tuple[ToyStar, FakeNetwork]:
    """A star with mishaps of frames, and with nodes that stall, die and come back, drawn from the seed."""
    rng = np.random.default_rng([seed, 1])
    drop, repeat, delay = (rng.random(3) * [0.05, 0.1, 0.3] * (rng.random(3) < 0.6)).tolist()
    network = FakeNetwork(seed, mishaps=Mishaps(drop, repeat, delay, late_s=0.2, until_s=END_S))
    star = ToyStar(FLEET, network)
    names = ["drafter", *map(target_name, range(FLEET.verifiers.count))]
    starts: list[Callable[[], None]] = [star.start_drafter, lambda: star.start_target(0), lambda: star.start_target(1)]
    for _ in range(rng.integers(4)):
        node, time_s, back_s = int(rng.integers(len(names))), rng.random() * 2.0, rng.random() * 8.0
        if rng.random() < 0.4:
            network.at(time_s, lambda node=node, back_s=back_s: network.stall(names[node], back_s))  # type: ignore[misc]
        else:
            network.at(time_s, lambda node=node: network.kill(names[node]))  # type: ignore[misc]
            network.at(time_s + back_s, starts[node])
    star.start()
    return star, network


def check(seed: int) -> None:
    star, network = scripted(seed)
    assert network.run(MOST_S, lambda: network.now_s > 12.0 and star.finished), f"seed {seed} hangs"
    check_texts(FLEET, star.outputs)
    for name, log in star.logs:
        found = replay(make_run(SCENARIO, "engine", log, FLEET))
        cut_short = [line for line in found if "the log ends while step" in line]  # of a life that was ended
        assert found == cut_short, f"seed {seed}, {name}"


SCENARIO = make_scenario(
    {
        "name": "toy",
        "verifiers": {"count": 2},
        "drafters": {"depth": 4},
        "workload": {"requests": 10, "prompt_tokens": 8, "new_tokens": 24},
    }
)


@pytest.mark.parametrize("start", [0, *(slow(start) for start in range(100, 1000, 100))])
def test_a_hundred_scripts_of_faults_change_no_token_and_every_target_ends(start: int) -> None:
    for seed in range(start, start + 100):
        check(seed)


def test_runs_with_the_same_seed_are_the_same() -> None:
    (one, first), (other, second) = scripted(7), scripted(7)
    assert first.run(MOST_S, lambda: one.finished)
    assert second.run(MOST_S, lambda: other.finished)
    assert one.logs == other.logs


def test_without_faults_nobody_is_refused_and_nothing_is_counted() -> None:
    network = FakeNetwork(0)
    star = ToyStar(FLEET, network)
    star.start()
    assert network.run(MOST_S, lambda: star.finished)
    check_texts(FLEET, star.outputs)
    door = network.nodes["drafter"].exchange.door
    assert door is not None
    assert not any(door.counts.values())


def test_when_the_drafter_dies_targets_decode_alone_and_ask_again_when_it_is_back() -> None:
    network, fleet = FakeNetwork(0), toy_fleet(workload={"requests": 30})
    star = ToyStar(fleet, network)
    star.start()
    assert not network.run(0.3, lambda: False)
    network.kill("drafter")
    assert not network.run(0.5, lambda: False)
    star.start_drafter()
    drafter = network.nodes["drafter"]
    assert network.run(MOST_S, lambda: star.finished)
    check_texts(fleet, star.outputs)
    assert drafter.worker.executor.drafted > 0  # type: ignore[attr-defined]


def test_a_target_that_dies_is_forgotten_within_a_lease_and_its_successor_is_served() -> None:
    network = FakeNetwork(0)
    star = ToyStar(FLEET, network)
    star.start()
    assert not network.run(0.3, lambda: False)
    network.kill(target_name(0))
    drafter = network.nodes["drafter"]
    assert network.run(MOST_S, lambda: target_name(0) not in network.nodes and not drafter.worker.station.sessions)
    assert network.now_s < 6.5
    star.start_target(0)
    assert network.run(MOST_S, lambda: star.finished)
    check_texts(FLEET, star.outputs)
