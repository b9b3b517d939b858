"""Devices: which server runs when, alone, time-sliced and concurrent."""

from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest
from simpy import Environment

from specfleet.fleet.stations.messages import Leave
from specfleet.fleet.stations.outcomes import nothing
from specfleet.fleet.times.step import Step
from specfleet.sim.servers import ContendedDevice, Delays, Device, Server, TimeSlicedDevice


class FakeServer:
    """A server with steps of these durations. It records their starts and ends."""

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


def offer_at(env: Environment, server: Any, *at_s: float) -> None:
    """Schedule offers of a server at these times."""
    for time_s in at_s:
        env.timeout(time_s).callbacks.append(lambda _: server.device.offer(server))


def test_steps_on_an_own_device_start_at_once() -> None:
    env = Environment()
    server = FakeServer(env, Device(), 1.0, 2.0)
    offer_at(env, server, 3.0)
    env.run()
    assert server.begun == [3.0, 4.0]
    assert server.ended == [(4.0, 1.0), (6.0, 2.0)]


@pytest.mark.parametrize("delay_s", [0.0, 0.25])
def test_time_slices_go_in_order_of_arrival(delay_s: float) -> None:
    """A server that ends a step joins the end of the queue. A delay holds the device."""
    env = Environment()
    device = TimeSlicedDevice()
    first = FakeServer(env, device, 1.0, 1.0, delay_s=delay_s)
    second, idle = FakeServer(env, device, 2.0, delay_s=delay_s), FakeServer(env, device)
    offer_at(env, first, 0.0)
    offer_at(env, idle, 0.3)
    offer_at(env, second, 0.4, 0.5)  # the second offer has no effect
    env.run()
    assert first.begun == [delay_s, 3.0 + 3 * delay_s]
    assert second.begun == [1.0 + 2 * delay_s]
    assert first.ended == [(1.0 + delay_s, 1.0), (4.0 + 3 * delay_s, 1.0)]
    assert (first.waited, second.waited) == ([False, False], [True])
    assert idle.begun == []


def test_a_withdrawn_start_takes_no_time_of_its_device() -> None:
    """A message at 0.5 s leaves nothing to do for a server that waits since 0.3 s."""
    env, device, delay_s = Environment(), TimeSlicedDevice(), repeat(0.25)
    first, last = FakeServer(env, device, 1.0), FakeServer(env, device, 2.0)
    recorded: Any = SimpleNamespace(station=SimpleNamespace(ready=True), handle=lambda *_: [])
    idle = Server(env, recorded, device, lambda _: 9.0, nothing, print, Delays(delay_s, delay_s, delay_s))
    for server, time_s in ((first, 0.0), (last, 0.4)):
        offer_at(env, server, time_s)
    for time_s, ready in ((0.3, True), (0.5, False)):
        env.run(time_s)
        recorded.station.ready = ready
        idle.deliver(Leave(0, 0))
    env.run()
    assert last.begun == [1.0]


def test_concurrent_steps_share_the_device() -> None:
    """Steps of 2, 1 and 1 s start at 0, 1 and 2 s. Two run at 1/2 of their speed, three at 1/4.

    At 2 s the first two have 1/2 s left and end at 4 s. The third then has 1/2 s left and ends at 4.5 s.
    """
    env = Environment()
    device = ContendedDevice((1.0, 2.0, 4.0))
    servers = [FakeServer(env, device, 2.0), FakeServer(env, device, 1.0), FakeServer(env, device, 1.0)]
    for start_s, server in enumerate(servers):
        offer_at(env, server, float(start_s))
    env.run()
    assert [server.ended for server in servers] == [[(4.0, 4.0)], [(4.0, 3.0)], [(4.5, 2.5)]]
    assert device.active == {}


def test_the_last_factor_holds_beyond_the_list() -> None:
    """A server without a step is not active."""
    env = Environment()
    device = ContendedDevice((1.0, 2.0))
    servers = [FakeServer(env, device, 1.0) for _ in range(3)]
    idle = FakeServer(env, device)
    for server in (*servers, idle):
        offer_at(env, server, 0.0)
    env.run()
    assert [server.ended for server in servers] == [[(2.0, 2.0)]] * 3
    assert idle.ended == []
