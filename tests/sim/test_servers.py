"""Devices by hand: who runs when, on a device of its own, by turns, and contended; recent load as time passes."""

from typing import Any

import pytest
from simpy import Environment

from fleet.times.effects import RecentLoad
from fleet.times.step import Step
from sim.servers import ContendedDevice, Device, OwnDevice, TurnsDevice

HALVED = RecentLoad(half_life_s=1.0, loads=(0.0, 1.0), slowdowns=(2.0, 1.0))


class Asking:
    """Asks for steps of given lengths, one after the other; notes with which load each begins, and when it ends."""

    def __init__(self, env: Environment, device: Device, *lengths_s: float, pace: float = 1.0) -> None:
        self.env = env
        self.device = device
        self.lengths_s = list(lengths_s)
        self.pace = pace
        self.begun: list[tuple[float, float]] = []
        self.ended: list[tuple[float, float]] = []

    def begin(self, recent_load: float) -> tuple[Step, float] | None:
        if not self.lengths_s:
            return None
        self.begun.append((self.env.now, recent_load))
        return Step(len(self.begun), "draft", ()), self.lengths_s.pop(0)

    def finish(self, step: Step, duration_s: float) -> None:
        assert step.number == len(self.begun)
        self.ended.append((self.env.now, duration_s))
        if self.lengths_s:
            self.device.offer(self)  # type: ignore[arg-type]

    def paced(self, time_s: float) -> float:
        return time_s * self.pace


def ask(env: Environment, server: Any, *at_s: float) -> None:
    """Let a server offer itself at these times."""
    for time_s in at_s:
        env.timeout(time_s).callbacks.append(lambda _: server.device.offer(server))


def test_recent_load_halves_with_each_half_life_of_idleness_and_returns_with_work() -> None:
    """It begins at 1 when the run begins: after 1 s idle 1/2, after 1 s busy 3/4, after 2 s idle 3/16."""
    env = Environment()
    server = Asking(env, OwnDevice(HALVED), 1.0)
    ask(env, server, 1.0)
    env.timeout(3.5).callbacks.append(lambda _: server.lengths_s.append(0.5))
    ask(env, server, 4.0)
    env.run()
    assert server.begun == [(1.0, 0.5), (4.0, pytest.approx(3 / 16))]
    assert server.ended == [(2.0, 1.0), (4.5, 0.5)]


def test_a_device_whose_speed_does_not_change_knows_full_load_only() -> None:
    env = Environment()
    server = Asking(env, OwnDevice(), 1.0, 2.0)
    ask(env, server, 3.0)
    env.run()
    assert server.begun == [(3.0, 1.0), (4.0, 1.0)]
    assert server.ended == [(4.0, 1.0), (6.0, 2.0)]


@pytest.mark.parametrize("handover_s", [0.0, 0.25])
def test_turns_go_in_the_order_of_asking_and_pass_over_who_has_nothing_left(handover_s: float) -> None:
    """Who ends a step asks again behind the others; the device rests for the handover at its server's pace."""
    env = Environment()
    device = TurnsDevice(handover_s)
    first, second, idle = Asking(env, device, 1.0, 1.0, pace=2.0), Asking(env, device, 2.0), Asking(env, device)
    ask(env, first, 0.0, 0.5, 0.6)  # asking twice is asking once
    ask(env, idle, 0.1)
    ask(env, second, 0.2)
    env.run()
    assert [begun for begun, _ in second.begun] == [1.0 + 2.0 * handover_s]
    assert [begun for begun, _ in first.begun] == [0.0, 3.0 + 2.0 * handover_s + handover_s]
    assert first.ended == [(1.0, 1.0), (4.0 + 3 * handover_s, 1.0)]
    assert idle.begun == []
    assert {load for _, load in first.begun + second.begun} == {1.0}


def test_contended_steps_share_the_device_by_their_number() -> None:
    """Alone 1, two at 1/2 each, three and more at 1/4: works of 2, 1 and 1 s that begin at 0, 1 and 2 s.

    The first has 1 s left at 1, the second 1 s; at 2 both have 1/2. Three run at 1/4: both are through at 4, and the
    third, with 1/2 left, at 4.5.
    """
    env = Environment()
    device = ContendedDevice((1.0, 2.0, 4.0))
    servers = [Asking(env, device, 2.0), Asking(env, device, 1.0), Asking(env, device, 1.0)]
    for start_s, server in enumerate(servers):
        ask(env, server, float(start_s))
    env.run()
    assert [server.ended for server in servers] == [[(4.0, 4.0)], [(4.0, 3.0)], [(4.5, 2.5)]]
    assert {load for server in servers for _, load in server.begun} == {1.0}
    assert device.active == {}


def test_beyond_the_last_factor_it_holds_for_all_and_nobody_who_has_nothing_counts() -> None:
    env = Environment()
    device = ContendedDevice((1.0, 2.0))
    servers = [Asking(env, device, 1.0) for _ in range(3)]
    idle = Asking(env, device)
    for server in (*servers, idle):
        ask(env, server, 0.0)
    env.run()
    assert [server.ended for server in servers] == [[(2.0, 2.0)]] * 3
    assert idle.ended == []


def test_a_device_decides_for_itself_who_starts() -> None:
    with pytest.raises(NotImplementedError):
        Device().offer(Asking(Environment(), OwnDevice()))  # type: ignore[arg-type]
