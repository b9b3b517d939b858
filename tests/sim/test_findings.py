"""The compiled loop writes the rows of the SimPy path, and gives the same metrics without their table."""

from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

import specfleet
from specfleet.experiments.sweep.cell import run_cell
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.policies.blocks import source_of
from specfleet.fleet.records.columns import Table, Words
from specfleet.fleet.records.metrics.findings import Findings, findings_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, counted
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.sim import run as runs
from specfleet.sim.fast import run, serving_arrays, sharing_arrays, table
from specfleet.sim.fast.choice import unsupported_in
from specfleet.sim.fast.logged import expand
from specfleet.sim.fast.run import simulate_findings, simulate_records
from specfleet.sim.fast.serving import run_serving
from specfleet.sim.fast.serving_cache import link_all
from specfleet.sim.fast.serving_state import StepLog
from specfleet.sim.fast.streamed import streamed_findings
from specfleet.sim.fast.table import rows_of
from specfleet.sim.run import observe, simulate
from tests.helpers.compiled_fleets import fleets_with_drafters, plain_stars, serving_fleets, sharing_fleets
from tests.helpers.marks import slow
from tests.helpers.stars import TABLES, star
from tests.sim.test_keys import CORNERS, corner


def measured(found: Findings) -> str:
    """All metrics, or the error, as text, so that NaN equals NaN."""
    try:
        return str(measure(found))
    except InputError as error:
        return str(error)


def in_words(column: Any) -> list[Any]:
    if isinstance(column, Words):
        return column.to_numpy().tolist()
    return (column if column.dtype == object else np.asarray(column, dtype=float)).tolist()


def check_rows(rows: Table, expected: Table) -> None:
    """Columns of the rows are equal, bit for bit."""
    assert len(rows) == len(expected)
    for name in rows.names:
        assert str(in_words(getattr(rows, name))) == str(in_words(getattr(expected, name))), name


def check(scenario: Scenario) -> None:
    fleet = resolve(scenario)
    assert unsupported_in(fleet) == ""
    by_simpy = simulate(scenario, path="simpy")
    table = simulate_records(fleet)
    assert counted(table) == by_simpy.header.rows
    by_loop = Run(by_simpy.header, table)
    assert by_loop.digest() == by_simpy.digest()
    assert replay(by_loop) == []
    expected, findings = findings_of(by_loop), simulate_findings(fleet)
    check_rows(findings.rows, expected.rows)
    assert measured(findings) == measured(expected)


@pytest.mark.parametrize("fleets", [plain_stars, serving_fleets, fleets_with_drafters, sharing_fleets])
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_loop_makes_the_rows_of_simpy_and_their_metrics(fleets: Any, data: st.DataObject) -> None:
    check(data.draw(fleets()))


def test_a_step_of_more_rows_than_drawn_ratios_sends_in_order() -> None:
    link = {"latency_s": 0.5, "spread": "exponential"}
    check(star(link=link, verifiers={"count": 1}, workload={"requests": 90, "streams": 90, "new_tokens": 9}))


def test_withdrawn_starts_have_new_delays() -> None:
    """Texts end while their drafter is about to start, and the next request wakes it again."""
    own = {"drafter": {"woken": {"mean_s": 3.0}}}
    profile = {"decode": {"base_s": 0.5}, "overhead": {"own": own}}
    verifiers = {"count": 1, "late": "decode"}
    scenario = star(profile=profile, verifiers=verifiers, workload={"new_tokens": {"low": 1, "high": 9}})
    assert playback_of(simulate(scenario)).withdrawn_s["drafter"]
    check(scenario)


@pytest.mark.parametrize("late", ["skip", "decode", "wait"])
@pytest.mark.parametrize("prefill_first", [False, True])
def test_rows_that_lose_their_cache_are_drafted_again(late: str, prefill_first: bool) -> None:
    """Some while their draft is on its way; with `skip` some find room again as they lose theirs."""
    profile = {"draft": {"base_s": 0.5, "spread": "exponential"}, "decode": {"base_s": 0.5}}
    limits = {"count": 1, "max_num_seqs": 4, "kv_tokens": 76, "kv_block_size": 4, "max_num_batched_tokens": 16}
    scenario = star(
        profile=profile, verifiers=limits | {"late": late, "prefill_first": prefill_first}, workload={"streams": 6}
    )
    rows = simulate(scenario).table.to_pandas()
    prompts = rows[(rows.event == "start") & (rows.base == 0) & (rows.station == "verifier.1")]
    assert prompts.groupby("request").size().max() > 1
    check(scenario)


@pytest.mark.parametrize("name", ["star", *(slow(name) for name in CORNERS if name != "star")])
def test_observed_metrics_equal_those_of_the_run(name: str) -> None:
    scenario = corner(name)
    found = findings_of(simulate(scenario))
    assert measured(observe(scenario)) == measured(found)


SHIFTED = ("return_s", "communication_s", "round_s")  # a round counts as its stream asks again, not as its draft ends


def values_of(metric: Metric) -> list[float]:
    return [metric.value, metric.low, metric.high, *(part.value for part in metric.percentiles.values())]


def summed(fleet: Fleet) -> dict[str, Metric]:
    """Return the metrics from the loop's sums."""
    logs: list[StepLog] = []
    arrays = run.served(fleet, 1 << 16, lambda _arrays, log: logs.append(log), recorded=True)
    return measure(streamed_findings(fleet, arrays, rows_of(fleet, arrays, logs[0])))


@pytest.mark.parametrize("fleets", [plain_stars, serving_fleets, fleets_with_drafters, sharing_fleets])
@settings(suppress_health_check=list(HealthCheck), max_examples=30)
@given(data=st.data())
def test_sums_of_the_loop_are_those_of_its_rows(fleets: Any, data: st.DataObject) -> None:
    fleet = resolve(data.draw(fleets()))
    expected = simulate_findings(fleet)
    try:
        metrics = measure(expected)
    except InputError:
        return
    found = summed(fleet)
    apart = {"speedup"} if len(fleet.verifiers.times) > 1 else set()  # it counts streams, not requests
    apart |= {name for name in ("bottleneck",) if name in metrics and metrics[name].value == 0}  # steps take no time
    apart |= set(SHIFTED)  # of a round at the window's edge
    assert found.keys() - apart == metrics.keys() - apart
    for name in metrics.keys() - apart:
        assert values_of(found[name]) == pytest.approx(values_of(metrics[name]), rel=1e-6, abs=1e-9, nan_ok=True), name


def test_drafts_beside_prompts_of_their_group_wait_for_these() -> None:
    """A draft begins after the prefills of others in its group, whether rows or sums say so."""
    profile = {"draft_prefill": {"base_s": 0.5}}
    drafters, verifiers = {"group": {"policy": "batch", "most": 8}}, {"count": 1, "max_num_seqs": 8}
    workload = {"requests": 60, "streams": 8, "new_tokens": {"low": 5, "high": 30}}
    fleet = resolve(star(profile=profile, drafters=drafters, verifiers=verifiers, workload=workload))
    assert summed(fleet)["wait_s"].value == pytest.approx(measure(simulate_findings(fleet))["wait_s"].value)


def test_drafts_of_texts_that_ended_keep_their_waits() -> None:
    """They end after the next request has taken their place."""
    profile = {"draft": {"base_s": 0.3}, "verify": {"base_s": 0.0}, "decode": {"base_s": 0.1}}
    workload = {"requests": 40, "prompt_tokens": 1, "new_tokens": 3, "arrivals": {"process": "poisson", "per_s": 4.0}}
    drafters, verifiers = {"count": 2}, {"count": 1, "max_num_seqs": 256, "late": "decode"}
    fleet = resolve(star(profile=profile, drafters=drafters, verifiers=verifiers, workload=workload))
    assert summed(fleet)["wait_s"].value == pytest.approx(measure(simulate_findings(fleet))["wait_s"].value)


def test_long_simulations_measure_what_their_rows_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of sums and samples that were halved are off by a few of their rows."""
    changes = {"drafters": {"place": "target", "depth": 3}, "workload": {"streams": 8, "requests": 300}}
    fleet = resolve(star(**changes, verifiers={"count": 1, "max_num_seqs": 8}))
    expected = measure(simulate_findings(fleet))
    monkeypatch.setattr(run, "KEPT", 1 << 10)
    monkeypatch.setattr(serving_arrays, "ROWS", 1 << 9)
    monkeypatch.setattr(serving_arrays, "SAMPLE", 1 << 7)
    found = measure(simulate_findings(fleet))
    assert found.keys() == expected.keys()
    for name, metric in expected.items():
        assert found[name].value == pytest.approx(metric.value, rel=0.02), name
        for field, percentile in metric.percentiles.items():
            assert found[name].percentiles[field].value == pytest.approx(percentile.value, rel=0.2), (name, field)


def test_a_window_ends_with_the_last_arrival_without_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    load = {"requests": 300, "conversations": {"turns": 4}, "arrivals": {"process": "poisson", "per_s": 2.0}}
    fleet = resolve(star(workload=load, measure={"ends": "arrivals"}, verifiers={"max_num_seqs": 8}))
    found = simulate_findings(fleet)
    monkeypatch.setattr(run, "KEPT", 1)
    assert simulate_findings(fleet).end_s == found.end_s < found.commits.time_s[-1]


@settings(max_examples=40, deadline=None)
@given(scenario=sharing_fleets())
def test_no_prompt_finds_more_than_other_texts_have(scenario: Scenario) -> None:
    """By hand: whole blocks from its beginning that another request has, too, without its last token."""
    fleet, size = resolve(scenario), resolve(scenario).verifiers.batching.block_size
    texts = {text.number: text for text in chain.from_iterable(streams_of(fleet).values())}
    places = range(1 + max(text.prompt_tokens + text.new_tokens for text in texts.values()) // size)

    def sources(text: Request, blocks: int) -> tuple[int, ...]:
        ends = [*zip(text.identity[::2], text.identity[1::2], strict=True)]
        end_of = ((place + 1) * size for place in places[:blocks])
        return tuple(next((source for source, end in ends if at <= end), source_of(text.number)) for at in end_of)

    kept = {text.number: sources(text, (text.prompt_tokens + text.new_tokens) // size) for text in texts.values()}
    begun = simulate(scenario, path="simpy").frame()[
        lambda rows: (rows.event == "start") & ~rows.station.str.startswith("drafter")
    ]
    for request, hits in begun[begun.kind.isin(["prefill", "chunk"])].groupby("request").base.first().items():
        found, others = kept[request][: hits // size], [other for number, other in kept.items() if number != request]
        assert hits < texts[request].prompt_tokens
        assert not hits or any(found == other[: len(found)] for other in others)


def test_what_is_offered_counts_requests_beyond_the_kept_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = (*range(20), *range(20, 200, 9))
    rows = [f"{time_s},10,20" for time_s in times_s]
    (tmp_path / "t.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]))
    trace = {"arrivals": {"process": "trace", "file": str(tmp_path / "t.csv")}}
    talks = {"conversations": {"turns": 4, "think_s": 50.0}, "arrivals": {"process": "poisson", "per_s": 2.0}}
    monkeypatch.setattr(run, "KEPT", 60)
    for load, per_s in ((trace, 39 / times_s[-1]), (talks, 8.0)):
        content = TABLES | {"drafters": {"count": 0}, "workload": load | {"requests": 40}}
        found = measure(simulate_findings(resolve(make_scenario(content))))
        assert found["offered_requests_per_s"].value == pytest.approx(per_s)


def test_records_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = star(drafters={"place": "target"}, workload={"streams": 8})
    expected = simulate(scenario, path="simpy").digest()
    monkeypatch.setattr(run, "ROOM", 1)
    monkeypatch.setattr(run, "FIRST_ROOM", 4)
    assert simulate(scenario, path="fast").digest() == expected


def test_the_loop_is_compiled_once_more_for_shared_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are checked before the first call only; here before each."""
    for module in (run, table, sharing_arrays):
        monkeypatch.setattr(module, "ready", lambda function, *_: function)
    simulate_findings(resolve(star()))
    simulate(star(drafters={"count": 0}), path="fast")
    for drafters in ({"count": 0}, {"place": "target"}):
        simulate(star(drafters=drafters, workload={"streams": 8}), path="fast")
        simulate_findings(resolve(star(drafters=drafters, workload={"streams": 8})))
    talks = {"streams": 8, "conversations": {"turns": 2}}
    for verifiers, workload in (({"prefix_cache": True}, {}), ({}, talks), ({"prefix_cache": True}, talks)):
        simulate(star(verifiers=verifiers, workload=workload), path="fast")
    loops: tuple[Any, ...] = (run_serving, link_all, expand)
    assert [len(loop.overloads) for loop in loops] == [2, 1, 1]


def test_sweep_cells_of_the_loop_keep_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(_fleet: object) -> None:
        raise AssertionError("it recorded")

    by_simpy = run_cell({}, star(), "sim", 2, path="simpy")
    monkeypatch.setattr(run, "simulate_records", recorded)
    assert str(run_cell({}, star(), "sim", 2, path="fast")) == str(by_simpy)


def test_long_simulations_keep_records_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = specfleet.simulate(star(), path="fast")
    monkeypatch.setattr(runs, "RECORDED_TOKENS", 10)
    frugal = specfleet.simulate(star(), path="fast")
    assert str(frugal.metrics) == str(kept.metrics)
    assert "no records" in frugal.title()
    for needs_rows in (frugal.rows, frugal.rounds, frugal.targets, lambda: specfleet.compare(frugal, kept)):
        with pytest.raises(InputError, match="records = True, or -o FILE"):
            needs_rows()
    assert specfleet.simulate(star(), path="fast", records=True).run.digest() == kept.run.digest()


def test_time_outside_steps_is_in_ttft_and_latency_of_both_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """And in goals: 45 ms are met without it, and missed with it. Closed loops wait for it."""
    verifiers, workload = {"max_num_seqs": 8}, {"requests": 200, "streams": 8, "prompt_tokens": 9, "new_tokens": 20}
    profile = msgspec.structs.replace(estimate("llama-3.1-8b@h100"), request_s=0.0)
    tables = {"drafters": {"count": 0}, "verifiers": verifiers, "slo": {"ttft_s": 0.045}, "workload": workload}
    within, outside = (
        make_scenario({"name": "x", "profile": msgspec.structs.replace(profile, request_s=time_s)} | tables)
        for time_s in (0.0, 0.05)
    )
    for kept in (run.KEPT, 100):  # rows of a table, beyond which it is summed
        monkeypatch.setattr(run, "KEPT", kept)
        without, with_it = (measure(observe(scenario, "fast")) for scenario in (within, outside))
        for metrics in (without, with_it):  # Little's law
            in_flight = metrics["throughput"].value / 20 * metrics["latency_s"].value
            assert in_flight == pytest.approx(8, rel=0.02)
        assert with_it["ttft_s"].value > without["ttft_s"].value + 0.04
        assert (without["slo_attainment"].value, with_it["slo_attainment"].value) == (1, 0)
    assert simulate(outside, path="simpy").digest() == simulate(outside, path="fast").digest()
