"""Devices by hand: which server runs when, on a device of its own, by turns, and contended."""

from typing import Any

import pytest
from simpy import Environment

from fleet.times.step import Step
from sim.servers import ContendedDevice, Device, OwnDevice, TimeSlicedDevice


class Asking:
    """A server with steps of given lengths, one after the other; notes when each begins and ends."""

    def __init__(self, env: Environment, device: Device, *lengths_s: float, delay_s: float = 0.0) -> None:
        self.env = env
        self.device = device
        self.lengths_s = list(lengths_s)
        self.delay_s = delay_s
        self.pausing = False
        self.waited: list[bool] = []
        self.begun: list[float] = []
        self.ended: list[tuple[float, float]] = []

    def start_delay_s(self, waited: bool = False) -> float:
        self.waited.append(waited)
        return self.delay_s

    def begin(self) -> tuple[Step, float] | None:
        if not self.lengths_s:
            return None
        self.begun.append(self.env.now)
        return Step(len(self.begun), "draft", ()), self.lengths_s.pop(0)

    def finish(self, step: Step, duration_s: float) -> None:
        assert step.number == len(self.begun)
        self.ended.append((self.env.now, duration_s))
        if self.lengths_s:
            self.device.offer(self)  # type: ignore[arg-type]


def ask(env: Environment, server: Any, *at_s: float) -> None:
    """Let a server offer itself at these times."""
    for time_s in at_s:
        env.timeout(time_s).callbacks.append(lambda _: server.device.offer(server))


def test_steps_on_an_own_device_start_at_once() -> None:
    env = Environment()
    server = Asking(env, OwnDevice(), 1.0, 2.0)
    ask(env, server, 3.0)
    env.run()
    assert server.begun == [3.0, 4.0]
    assert server.ended == [(4.0, 1.0), (6.0, 2.0)]


@pytest.mark.parametrize("delay_s", [0.0, 0.25])
def test_time_slices_go_in_order_of_arrival(delay_s: float) -> None:
    """A server that ends a step asks again behind the others; the device is held while a delay passes."""
    env = Environment()
    device = TimeSlicedDevice()
    first = Asking(env, device, 1.0, 1.0, delay_s=delay_s)
    second, idle = Asking(env, device, 2.0, delay_s=delay_s), Asking(env, device)
    ask(env, first, 0.0)
    ask(env, idle, 0.3)
    ask(env, second, 0.4, 0.5)  # asking twice is asking once
    env.run()
    assert first.begun == [delay_s, 3.0 + 3 * delay_s]
    assert second.begun == [1.0 + 2 * delay_s]
    assert first.ended == [(1.0 + delay_s, 1.0), (4.0 + 3 * delay_s, 1.0)]
    assert (first.waited, second.waited) == ([False, False], [True])
    assert idle.begun == []


def test_concurrent_steps_share_the_device() -> None:
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
    assert device.active == {}


def test_the_last_factor_holds_beyond_the_list() -> None:
    """A server without a step does not count."""
    env = Environment()
    device = ContendedDevice((1.0, 2.0))
    servers = [Asking(env, device, 1.0) for _ in range(3)]
    idle = Asking(env, device)
    for server in (*servers, idle):
        ask(env, server, 0.0)
    env.run()
    assert [server.ended for server in servers] == [[(2.0, 2.0)]] * 3
    assert idle.ended == []
