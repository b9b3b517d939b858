"""Nodes of several drafters, started by hand: real models in threads of one process, over loopback."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from specfleet.engine.launch.by_hand import serve_node
from specfleet.engine.launch.runnable import check_by_hand
from specfleet.engine.net.actions import SERVER_PORT
from specfleet.engine.net.addresses import shown
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.node.node import Node, Site
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import drafter_node, verifier_node
from specfleet.engine.node.router import router_node
from specfleet.engine.replayed.drafter import replayed_drafter_node
from specfleet.engine.replayed.targets import ReplayedFleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import make_run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.pairs import pair_scenario
from tests.helpers.plain import plain_outputs
from tests.helpers.stars import star
from tests.helpers.threads import Started, Threads

PATIENCE_S = 30.0
CALLED = ["ipc:///nowhere"]
REPLAYED: dict[str, Any] = {
    "drafters": {"kind": "replayed"}, "verifiers": {"kind": "replayed"},
    "profile": {"draft": {"base_s": 0.001}, "verify": {"base_s": 0.002}, "verify_prefill": {"base_s": 0.002}},
}  # fmt: skip
SCENARIO = star()


def fleet_by_hand(folder: Path, **drafters: Any) -> Scenario:
    drafters = {"model": str(folder / "kin"), "count": 2, "depth": 4} | drafters
    return pair_scenario(folder, drafters=drafters, verifiers={"count": 1})


def serving(threads: Threads, nodes: list[Node]) -> list[Started]:
    """Start the nodes in threads, the last one first, and connect them; the result of each is its log."""

    def serve(node: Node) -> Log:
        node.wait_for_welcomes(PATIENCE_S)
        return node.serve(now_s())

    for node in reversed(nodes):
        node.open()
    return [threads.start(lambda node=node: serve(node)) for node in nodes]  # type: ignore[misc]


def check(scenario: Scenario, servers: list[Node], target: Node) -> Any:
    """Run them to their end; check texts and logs; return the log as a frame."""
    with Threads() as threads:
        started = serving(threads, [*servers, target])
        log: Log = list(started[-1].result())
        for node, thread in zip(servers, started, strict=False):
            node.stop()
            log += thread.result()
    assert target.outputs == plain_outputs(scenario)
    run = make_run(scenario, "engine", log, resolve(scenario))
    assert replay(run) == []
    frame = run.frame()
    assert not (frame.event == "refusal").any()
    assert frame.query("event == 'done' and kind == 'verify'").accepted.sum() > 0
    return frame


def addresses(drafters: list[Node]) -> dict[int, str]:
    return {number: node.address for number, node in enumerate(drafters)}


def test_a_router_answers_once_all_drafters_have_answered(tiny: Path) -> None:
    """The target connects first, then the router, then each drafter: no token is decoded alone."""
    scenario = fleet_by_hand(tiny, route="shortest-queue")
    fleet = resolve(scenario)
    drafters = [drafter_node(fleet, number) for number in range(2)]
    router = router_node(fleet, addresses(drafters), 40)
    target = verifier_node(fleet, 0, prompts_of(fleet), {0: router.address})
    assert router.socket_thread is not None
    assert target.socket_thread is not None
    assert router.socket_thread.connections.missing().startswith("drafters at /")
    assert target.socket_thread.connections.missing() == f"the router at {shown([router.address])}"
    hello = ClientEnd(fleet, 0, 1).tick(0.0)[0]
    assert router.socket_thread.connections.receive(SERVER_PORT, b"early", hello.frame, 0.0) == []  # type: ignore[union-attr]
    frame = check(scenario, [*drafters, router], target)
    assert set(frame.station) == {"drafter.1", "drafter.2", "router", "verifier.1"}


def test_replayed_targets_say_that_they_have_lost_their_drafter() -> None:
    fleet = resolve(star(**REPLAYED))
    drafter, lines = replayed_drafter_node(fleet), list[str]()
    drafter.open()
    targets = ReplayedFleet(fleet, addresses([drafter]), site=Site(say=lines.append))
    targets.open()
    targets.wait_for_welcomes(PATIENCE_S)
    drafter.close()
    targets.serve(now_s())
    said = [f"{shown([drafter.address])} {how}" for how in ("has ended", "is gone")]
    lines = [line for line in lines if not line.startswith("refused or dropped")]
    assert lines in ([said[0]], [said[1]], said)  # its farewell may come before its connection ends


def test_stopped_replayed_targets_end_their_running_steps() -> None:
    class Stopping(ReplayedFleet):
        def _wait(self) -> None:
            if any(target.running for target in self.targets.values()):
                self.stop()
            super()._wait()

    scenario = change_scenario(star(**REPLAYED), {"profile.verify_prefill.base_s": 0.02})
    fleet = resolve(scenario)
    drafter = replayed_drafter_node(fleet)
    drafter.open()
    targets = Stopping(fleet, addresses([drafter]))
    targets.open()
    targets.wait_for_welcomes(PATIENCE_S)
    run = make_run(scenario, "engine", targets.serve(now_s()), fleet)
    drafter.close()
    assert replay(run) == []
    assert "start" in run.table["event"].to_pylist()
    assert targets.targets[0].requests, "it stopped before its end"


@pytest.mark.parametrize("shares", [[[0, 1, 2]], [[0, 1], [2]]])
def test_replayed_targets_call_a_router(shares: list[list[int]]) -> None:
    """All in one process, or in two."""
    routed = {"drafters": {"kind": "replayed", "count": 2, "route": "round-robin"}}
    scenario = star(**REPLAYED | routed, workload={"requests": 6, "new_tokens": 20})
    fleet = resolve(scenario)
    servers: list[Node] = [replayed_drafter_node(fleet, number) for number in range(2)]
    servers.append(router := router_node(fleet, addresses(servers)))
    called = {0: router.address}
    targets = [ReplayedFleet(fleet, called, numbers) for numbers in shares]

    def decode(several: ReplayedFleet) -> Log:
        several.open()
        several.wait_for_welcomes(PATIENCE_S)
        return several.serve(now_s())

    with Threads() as threads:
        decoding = [threads.start(lambda several=several: decode(several)) for several in targets]  # type: ignore[misc]
        started = serving(threads, servers)
        log: Log = []
        for thread in decoding:
            log += thread.result()
        for node, thread in zip(reversed(servers), reversed(started), strict=True):
            node.stop()
            log += thread.result()
    run = make_run(scenario, "engine", log, resolve(scenario))
    assert replay(run) == []
    frame = run.frame()
    assert set(frame.station) == {"drafter.1", "drafter.2", "router", "verifier.1", "verifier.2", "verifier.3"}
    assert not (frame.event == "refusal").any()
    verified = frame.query("event == 'done' and kind == 'verify'")
    reached = (verified.base + verified.accepted + 1).groupby(verified.request).max()
    assert (reached >= 30).tolist() == [True] * 6


@pytest.mark.parametrize(
    ("server", "client", "message"),
    [
        (0, {"drafter": 1}, "this is drafter 1, and not 2; name drafters in their order"),
        (1, {"drafter": 0}, "this is drafter 2, and not 1; name drafters in their order"),
        (1, {"drafter": 0, "role": "router"}, "this is drafter 2, and not 1"),
    ],
)
def test_drafters_named_in_another_order_deny_a_client(server: int, client: dict[str, Any], message: str) -> None:
    fleet = resolve(star(drafters={"count": 2, "route": "round-robin" if "role" in client else "affinity"}))
    assert message in denied(ServerEnd(fleet, drafter=server), ClientEnd(fleet, 0, 1, **client))


def test_a_drafter_behind_a_router_denies_targets() -> None:
    fleet = resolve(star(drafters={"count": 2, "route": "round-robin"}))
    message = denied(ServerEnd(fleet, drafter=0), ClientEnd(fleet, 0, 1))
    assert message == "this is drafter 1; with drafters.route targets connect to the router alone"
    assert denied(ServerEnd(fleet, drafter=None), ClientEnd(fleet, 0, 1, "router")) == (
        "this is a router, and routers call drafters"
    )
    assert denied(ServerEnd(fleet, drafter=None), ClientEnd(fleet, 0, 1)) == ""


def denied(server: ServerEnd, client: ClientEnd) -> str:
    """The reason why a server denies a client; empty if it welcomes it."""
    (hello,) = client.tick(0.0)
    (answer,) = server.receive(b"peer", hello.frame, 0.0)  # type: ignore[union-attr]
    (action,) = client.receive(answer.frame, 0.0)  # type: ignore[union-attr]
    return getattr(action, "reason", "").removeprefix("the drafter: ")


def test_nodes_that_are_started_by_hand_are_killed_by_hand() -> None:
    lossy: dict[str, Any] = {"verifiers": {"patience_s": 1.0}, "drafters": {"lease_s": 1.0}}
    check_by_hand(resolve(make_scenario(lossy | {"faults": [{"what": "link", "effect": "drop", "share": 0.1}]})))
    with pytest.raises(InputError, match=r"node = 'drafter': nodes that are started by hand are killed and stopped by"):
        check_by_hand(resolve(make_scenario(lossy | {"faults": [{"what": "kill", "node": "drafter"}]})))


def test_nodes_that_are_started_by_hand_take_no_turns() -> None:
    shared, devices = {"device": "host"}, {"host": {"sharing": "turns"}}
    tables: dict[str, Any] = {"drafters": shared, "verifiers": shared, "devices": devices}
    with pytest.raises(InputError, match=r"devices\.host\.sharing = 'turns': .* leave out drafters\.device"):
        check_by_hand(resolve(star(**tables)))
    check_by_hand(resolve(star(**tables | {"devices": {"host": {"sharing": "contended"}}})))


def test_options_that_contradict_the_scenario_are_refused() -> None:
    dealt, routed = (star(drafters={"count": 2, "route": route}) for route in ("affinity", "round-robin"))
    alone = star(drafters={"place": "target"})
    refused: dict[str, Any] = {
        r"drafters\.place = 'target': targets draft themselves": lambda: serve_node(alone, "drafter"),
        r"nothing is to be routed; a router needs drafters\.count": lambda: serve_node(dealt, "router"),
        r"--connect: 1 address, and scenario": lambda: serve_node(routed, "router", connect=CALLED),
        r"--connect: 1 address, and scenario 'unnamed' has": lambda: serve_node(dealt, "target", connect=CALLED),
        r"--connect: 2 addresses, and with drafters\.route targets call the router alone": lambda: serve_node(
            routed, "target", connect=[*CALLED, "ipc:///elsewhere"]
        ),
        r"--number 1-2: a drafter or a real target has a process of its own": lambda: serve_node(
            routed, "target", [0, 1]
        ),
    }
    for message, start in refused.items():
        with pytest.raises(InputError, match=message):
            start()


pytest.importorskip("torch")

from specfleet.engine.launch import by_hand
from specfleet.engine.node.node import Stations
from specfleet.fleet.records.run import read_run
from specfleet.fleet.records.schema import PowerSample
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of_run


class DrafterNode(Stations):
    """A node that has served already."""

    def stations(self) -> list[Any]:
        return [SimpleNamespace(log=[], station=SimpleNamespace(name="drafter"))]

    def serve(self, _zero_s: float) -> Log:
        return log_of_run(simulate(SCENARIO))


class Meter:
    def read(self) -> PowerSample:
        return PowerSample(device="Jetson", graphics_clock_mhz=918.0, power_w=12.0, utilisation=0.5)


@pytest.mark.parametrize("meter", [Meter(), None])
def test_a_node_by_hand_keeps_its_devices_counters(
    meter: Meter | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "measured_here", lambda _say: meter)
    records, samples = tmp_path / "drafter.parquet", tmp_path / "power.parquet"
    by_hand.serve_and_keep(DrafterNode(resolve(SCENARIO)), SCENARIO, records, None, lambda _line: None, samples)
    devices = read_run(records).header.devices
    assert samples.exists() == (meter is not None)
    if meter is not None:
        (curve,) = devices
        assert (curve.device, curve.stations) == ("Jetson", ("drafter",))
        assert set(curve.graphics_clock_mhz) == {918.0}
        assert len(curve.times_s) == pq.read_table(samples).num_rows >= 2
    else:
        assert devices == ()


@pytest.mark.parametrize("own", [None, "FASTEST_FIRST"])
def test_gpus_of_a_node_by_hand_are_numbered_as_its_meters(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"CUDA_DEVICE_ORDER": own} if own else {}
    monkeypatch.setattr("os.environ", environment)
    by_hand.prepare_device()
    assert environment == {"CUDA_DEVICE_ORDER": own or "PCI_BUS_ID"}
