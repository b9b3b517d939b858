"""What Prometheus reads of a running fleet: our own reader of vLLM's text finds the run's acceptance in it."""

import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from specfleet.calibration.readers.vllm_metrics import read_vllm_metrics
from specfleet.experiments.watching.page import FAMILIES, PrometheusPage, metrics_page
from specfleet.fleet.acceptance.models import PerPosition
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.counters import EDGES_S, Counters, Histogram
from specfleet.fleet.records.metrics.tables import commits_of, verifications_of
from specfleet.fleet.records.recorder import ReportedRows
from specfleet.fleet.records.schema import WIDTH, PowerSample
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.fleet.test_counters import KINDS
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star

RUNS: dict[str, dict[str, Any]] = {
    name: KINDS[name] for name in ("a star", "trees", "two drafters", "drafting ahead", "aligned rows", "no drafter")
} | {"deeper": {"drafters": {"depth": 8}}}


def counters_of(scenario: Scenario, share: float = 1.0, station: str = "") -> tuple[Counters, Any]:
    """Counters after a share of a run's rows, and those rows; of stations with names that begin with `station`."""
    run = simulate(scenario)
    log = log_of_run(run)
    rows = int(share * len(log) / WIDTH)
    counters = Counters(resolve(scenario))
    for row in (log[place : place + WIDTH] for place in range(0, rows * WIDTH, WIDTH)):
        if row[1].startswith(station):
            counters.take(ReportedRows(12.5, row))
    counters.time_s = 12.5
    return counters, run.columns().where(np.arange(rows))


def text_of(scenario: Scenario, counts: Counters) -> str:
    page, registry = PrometheusPage(resolve(scenario)), CollectorRegistry()
    page.put(counts)
    registry.register(page)  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def total(text: str, name: str) -> float:
    return sum(value for found, _, value in samples(text) if found == name)


@pytest.mark.parametrize("kind", [kind for kind in RUNS if kind != "no drafter"])
def test_a_runs_text_is_read_as_its_acceptance(kind: str, tmp_path: Path) -> None:
    scenario = star(**RUNS[kind])
    counts, rows = counters_of(scenario)
    scrape = tmp_path / "metrics.txt"
    scrape.write_text(text_of(scenario, counts))
    read, verified = read_vllm_metrics([scrape]), verifications_of(rows).frame()
    drafts = verified[verified.draft_tokens > 0]
    assert (read.rounds, read.accepted) == (len(drafts), drafts.acceptance_length.sum())
    assert read.stated == pytest.approx(1 + drafts.acceptance_length.mean())
    assert isinstance(read.acceptance, PerPosition)
    histogram = np.bincount(drafts.acceptance_length, minlength=read.depth + 1)
    if drafts.draft_tokens.nunique() == 1:
        assert read.acceptance.histogram == tuple(histogram)
    if kind in ("a star", "deeper", "two drafters", "trees"):
        assert read.depth == scenario.drafters.depth


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_sample_is_documented_and_agrees_with_the_records(kind: str, share: float) -> None:
    scenario = star(**RUNS[kind])
    counts, table = counters_of(scenario, share)
    text = text_of(scenario, counts)
    names = {one.name for one in FAMILIES}
    parts = {
        f"{one.name}{part}" for one in FAMILIES if one.kind == "histogram" for part in ("_bucket", "_sum", "_count")
    }
    found = {name for name, _, _ in samples(text)}
    assert found <= names | parts
    assert total(text, "vllm:generation_tokens_total") == commits_of(table).committed.sum()
    rows = table.frame()
    joins, firsts = rows[rows.event == "join"], rows[(rows.event == "start") & (rows.kind == "prefill")]
    begun = set(firsts[~firsts.station.str.startswith("drafter")].request)
    assert total(text, "vllm:num_requests_waiting") == len(set(joins.request) - begun)
    assert total(text, "vllm:prompt_tokens_total") == joins.tokens.sum()
    assert total(text, "specfleet_up_seconds") == 12.5
    if share == 1.0:
        assert total(text, "specfleet_requests_finished_total") == scenario.workload.requests
        assert total(text, "vllm:e2e_request_latency_seconds_count") == scenario.workload.requests


def test_a_measured_run_has_a_sample_of_every_metric() -> None:
    scenario = star()
    counts, _ = counters_of(scenario)
    gpu = PowerSample(1.0, "", 0, "gpu (NVML)", 1980.0, 300.0, 2.0**30, 5000.0)
    counts.take(ReportedRows(12.5, [], (gpu, PowerSample(1.0, "", 0, "package-0 (RAPL)"))))
    text = text_of(scenario, counts)
    found = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name, _, _ in samples(text)}
    assert found == {one.name for one in FAMILIES}
    sums = {name: value for name, labels, value in samples(text) if labels.get("device") == "gpu (NVML)"}
    assert sums == {
        "specfleet_energy_joules_total": 5000.0, "specfleet_power_watts": 300.0,
        "specfleet_graphics_clock_hertz": 1.98e9, "specfleet_memory_used_bytes": 2.0**30,
    }  # fmt: skip
    assert "package-0" not in text


def test_histogram_buckets_count_values_up_to_their_edge() -> None:
    scenario = star()
    counts, _ = counters_of(scenario)
    counts.waits = Histogram()
    for time_s in (0.0005, 0.001, 0.002, 400.0):
        counts.waits.add(time_s)
    name, text = "specfleet_draft_wait_seconds", text_of(scenario, counts)
    buckets = {float(labels["le"]): value for found, labels, value in samples(text) if found == f"{name}_bucket"}
    assert list(buckets) == [*EDGES_S, float("inf")]
    assert list(buckets.values()) == [2, *[3] * (len(EDGES_S) - 1), 4]
    assert (total(text, f"{name}_count"), total(text, f"{name}_sum")) == (4, pytest.approx(400.0035))


def test_a_drafter_has_no_samples_of_users() -> None:
    scenario = star(verifiers={"kind": "replayed"}, drafters={"kind": "replayed"})
    counts, _ = counters_of(scenario, station="drafter")
    text = text_of(scenario, counts)
    found = {name for name, _, _ in samples(text)}
    assert not any(name.startswith(("vllm:num_requests", "vllm:generation", "vllm:time")) for name in found)
    assert "vllm:spec_decode_num_drafts_total" in found
    assert {labels["model_name"] for _, labels, _ in samples(text) if "model_name" in labels} == {"replayed"}
    ahead = star(drafters={"overlap": "ahead"})
    found = {name for name, _, _ in samples(text_of(ahead, counters_of(ahead, station="drafter")[0]))}
    assert "specfleet_rounds_total" in found
    assert not any("spec_decode" in name for name in found), "what was accepted is unknown"


def test_metrics_are_served_and_a_taken_port_is_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scenario = star()
    counts, _ = counters_of(scenario)
    with metrics_page(resolve(scenario), port, "127.0.0.1") as put:
        put(counts)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert total(answer.read().decode(), "vllm:generation_tokens_total") == counts.committed
        taken = f"--metrics-port {port} at 127.0.0.1: .*; give another port"
        with pytest.raises(InputError, match=taken), metrics_page(resolve(scenario), port, "127.0.0.1"):
            pass
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


PROMTOOL = shutil.which("promtool")
WATCHING = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()


def test_rules_of_the_page_use_metrics_that_are_served() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", WATCHING, re.DOTALL)
    expressions = re.findall(r"expr: (.+)", "".join(blocks))
    used = {name for text in expressions for name in re.findall(r"[a-z_]+[:_][a-z_:]+_total", text)}
    served = text_of(star(), counters_of(star())[0])
    assert len(used) == 3
    assert all(f"\n{name}{{" in served for name in used)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool of Prometheus is not installed")
def test_promtool_accepts_the_page_and_its_configuration(tmp_path: Path) -> None:
    for name, text in re.findall(r"```yaml\n# (\S+)\n(.*?)```", WATCHING, re.DOTALL):
        (tmp_path / name).write_text(text)
    tool = str(PROMTOOL)
    checked = subprocess.run(
        [tool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2 rules found" in checked.stdout
    served = text_of(star(), counters_of(star())[0])
    checked = subprocess.run([tool, "check", "metrics"], input=served, capture_output=True, text=True, check=False)
    assert checked.returncode in (0, 3), checked.stderr  # 3: names that its style guide would change
    assert "error" not in checked.stderr.lower()
