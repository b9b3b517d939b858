"""Records of nodes on several hosts become one run: clocks that were set apart come together again."""

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import specfleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.columns import array_of, numbers_of
from specfleet.fleet.records.join import Joined, join_runs
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.power import DeviceCurve
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, write_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.run import simulate
from tests.helpers.cli import Say

WAY_S = 0.002


def star(requests: int = 12, **drafters: object) -> Run:
    """A simulated star whose nodes could be on three hosts."""
    run = simulate(
        make_scenario(
            {
                "name": "apart", "profile": {"name": "stated", "draft": {"base_s": 0.01}, "verify": {"base_s": 0.03}},
                "acceptance": {"model": "geometric", "beta": 0.7}, "link": {"latency_s": WAY_S},
                "drafters": {"depth": 4} | drafters, "verifiers": {"count": 2},
                "workload": {"requests": requests, "prompt_tokens": 32, "new_tokens": 64},
            }
        )
    )  # fmt: skip
    return Run(msgspec.structs.replace(run.header, world="engine"), run.table)


def node(run: Run, *stations: str, ahead_s: float = 0.0, drift: float = 0.0) -> Run:
    """Return what a node with these stations would have written, by a clock that is ahead."""
    rows = run.frame()
    table = run.table.filter(array_of(rows.station.isin(stations).to_numpy(), pa.bool_()))
    time_s = numbers_of(table["time_s"]) * (1 + drift) + ahead_s
    table = table.set_column(table.schema.get_field_index("time_s"), "time_s", array_of(time_s, pa.float64()))
    own = {station: run.header.rows[station] for station in stations}
    return Run(msgspec.structs.replace(run.header, rows=own), table)


def apart(run: Run, drift: float = 0.0) -> Joined:
    """Take a run apart and join it again."""
    one, two = node(run, "verifier.1", ahead_s=37.5, drift=drift), node(run, "verifier.2", ahead_s=-0.25)
    return join_runs([("drafter.parquet", node(run, "drafter")), ("one.parquet", one), ("two.parquet", two)])


def test_clocks_come_together() -> None:
    run = star()
    joined = apart(run)
    assert [clock.ahead_s for clock in joined.clocks] == pytest.approx([0, 37.5, -0.25], abs=1e-9)
    assert [clock.error_s for clock in joined.clocks] == pytest.approx([0, WAY_S, WAY_S], abs=1e-9)
    assert replay(joined.run) == []
    whole, again = run.frame(), joined.run.frame()
    assert again.time_s.to_numpy() == pytest.approx(whole.time_s.to_numpy() - whole.time_s.min(), abs=1e-9)
    for name, metric in measure(run).items():
        assert measure(joined.run)[name].value == pytest.approx(metric.value, nan_ok=True), name
    assert set(zip(joined.links.sender, joined.links.receiver, strict=True)) == {
        ("drafter.parquet", "one.parquet"), ("one.parquet", "drafter.parquet"),
        ("drafter.parquet", "two.parquet"), ("two.parquet", "drafter.parquet"),
    }  # fmt: skip
    assert joined.links.least_s.tolist() == pytest.approx([WAY_S] * 4, abs=1e-9)


def test_measured_devices_come_to_the_joined_clock() -> None:
    run, nodes = star(), []
    begins_s = run.frame().time_s.min()
    for name, ahead_s in (("drafter", 0.0), ("verifier.1", 37.5), ("verifier.2", -0.25)):
        curve = DeviceCurve("H100", (begins_s + ahead_s, begins_s + ahead_s + 1.0), (0.0, 300.0), stations=(name,))
        one = node(run, name, ahead_s=ahead_s)
        nodes.append((name, Run(msgspec.structs.replace(one.header, devices=(curve,)), one.table)))
    devices = join_runs(nodes).run.header.devices
    assert [one.stations for one in devices] == [("drafter",), ("verifier.1",), ("verifier.2",)]
    assert [time_s for one in devices for time_s in one.times_s] == pytest.approx([0.0, 1.0] * 3, abs=1e-9)


def test_a_clock_that_drifts_is_followed() -> None:
    run = star(requests=400)
    joined = apart(run, drift=5e-5)
    assert joined.clocks[1].drift == pytest.approx(5e-5, rel=0.1)
    whole = run.frame()
    off_s = np.abs(joined.run.frame().time_s.to_numpy() - (whole.time_s.to_numpy() - whole.time_s.min()))
    assert off_s.max() < 0.001


def test_messages_may_come_back_by_a_third_host() -> None:
    """Targets ask the router, drafters answer targets: between two hosts they go one way only."""
    run = star(count=2, route="shortest-queue")
    stations = ("router", "drafter.1", "drafter.2", "verifier.1", "verifier.2")
    nodes = [(name, node(run, name, ahead_s=3.0 * number)) for number, name in enumerate(stations)]
    joined = join_runs(nodes)
    for number, clock in enumerate(joined.clocks):
        assert clock.ahead_s == pytest.approx(3.0 * number, abs=clock.error_s + 1e-9)
        assert clock.error_s < 3 * WAY_S
    assert replay(joined.run) == []


def test_fleets_in_parts_have_no_common_clock() -> None:
    run = star(count=2)
    stations = ("drafter.1", "drafter.2", "verifier.1", "verifier.2")
    with pytest.raises(InputError, match=r"drafter\.2: no messages lead from its stations to those of drafter\.1 and"):
        join_runs([(name, node(run, name)) for name in stations])


def test_the_command_joins_files(say: Say, tmp_path: Path) -> None:
    run, files = star(), []
    for station, ahead_s in (("drafter", 0.0), ("verifier.1", 9.0), ("verifier.2", 3.0)):
        files.append(tmp_path / f"{station}.parquet")
        write_run(node(run, station, ahead_s=ahead_s), files[-1])
    out = tmp_path / "run.parquet"
    assert "9000" in say("join", *files, "-o", out).out
    assert specfleet.read_run(out).metrics["rounds_per_s"].value > 0
    assert specfleet.join(files).metrics["throughput"].value == pytest.approx(measure(run)["throughput"].value)


def test_models_have_paths_of_their_own_on_each_host() -> None:
    run, replace = star(), msgspec.structs.replace
    nodes = [node(run, station) for station in ("drafter", "verifier.1", "verifier.2")]
    scenario = run.header.scenario
    moved = replace(scenario, verifiers=replace(scenario.verifiers, model="/elsewhere/large"))
    header = replace(nodes[-1].header, scenario=moved, scenario_digest=moved.digest())
    nodes[-1] = Run(header, nodes[-1].table)
    joined = join_runs([(str(number), each) for number, each in enumerate(nodes)])
    assert joined.run.table.num_rows == run.table.num_rows


def test_what_does_not_belong_together_is_refused() -> None:
    run, other = star(), star(requests=14)
    drafter, one, two = (node(run, station) for station in ("drafter", "verifier.1", "verifier.2"))
    later = array_of(numbers_of(drafter.table["tag"]) + run.header.fleet.workload.requests, pa.int64())
    place = drafter.table.schema.get_field_index("tag")
    again = Run(drafter.header, drafter.table.set_column(place, "tag", later))
    for runs, said in (
        ([drafter, one], "no file has the records of verifier.2"),
        ([drafter, one, one, two], "has the records of verifier.1, which another file has, too"),
        ([drafter, one, node(other, "verifier.2")], "is of another scenario"),
        ([again, one, two], "has requests of a target that was started again"),
        ([simulate(run.header.scenario), one], "needs the records that a node wrote"),
    ):
        with pytest.raises(InputError, match=said):
            join_runs([(str(number), each) for number, each in enumerate(runs)])


def test_nodes_that_sent_nothing_have_no_common_clock() -> None:
    run = star(count=0)
    with pytest.raises(InputError, match="without messages clocks are unknown"):
        join_runs([(name, node(run, name)) for name in ("verifier.1", "verifier.2")])
