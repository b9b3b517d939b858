"""GuideLLM's and inference-perf's reports, made of one simulated server, have the load that it had."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.calibration.readers.bench import read_bench
from specfleet.calibration.readers.load import Load
from specfleet.calibration.readers.reports import read_guidellm, read_inference_perf
from specfleet.fleet.errors import InputError
from tests.calibrate.test_damaged import DATA
from tests.helpers.loads import bench_text, load_in, served
from tests.helpers.readings import write
from tests.inputs.values import mutated

KNOWN = served(40)
GUIDE, REQUESTS, STAGE = (
    json.loads((DATA / f"{name}.json").read_text()) for name in ("guidellm", "inference-perf", "inference-perf-stage")
)
FILES: dict[str, tuple[str, Any]] = {
    "GuideLLM": ("guidellm", GUIDE),
    "inference-perf, requests": ("inference-perf", REQUESTS),
    "inference-perf, a stage": ("inference-perf", STAGE),
}
READ = {"guidellm": read_guidellm, "inference-perf": read_inference_perf}


def load_of(kind: str, content: Any, folder: Path, in_flight: int | None = None) -> Load:
    return load_in(READ[kind]([write(folder / "report.json", json.dumps(content))], in_flight))


@pytest.mark.parametrize("name", FILES)
def test_a_report_has_the_load_of_its_requests(tmp_path: Path, name: str) -> None:
    kind, content = FILES[name]
    load = load_of(kind, content, tmp_path, 4 if name == "inference-perf, requests" else None)
    known = load_in(read_bench([write(tmp_path / "bench.json", bench_text(KNOWN))]))
    for one, other in ((load.ttft_s, known.ttft_s), (load.tpot_s, known.tpot_s), (load.new_tokens, known.new_tokens)):
        assert one is not None
        assert other is not None
        assert one.mean == pytest.approx(other.mean, rel=1e-4)
        assert one.quantiles == pytest.approx(other.quantiles, rel=1e-4)
    assert (load.requests, load.in_flight, load.limit) == (40, 4, 4)
    assert load.tokens_per_s == pytest.approx(known.tokens_per_s, rel=0.06)


@pytest.mark.parametrize("name", FILES)
def test_a_report_becomes_a_scenario_that_simulates(tmp_path: Path, name: str) -> None:
    kind, content = FILES[name]
    file, options = write(tmp_path / "report.json", json.dumps(content)), {"in_flight": 4} if "requests" in name else {}
    made = specfleet.import_record(kind, file, tmp_path / "made.toml", **options)
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    errors = {row.quantity: abs(row.error or 0) for row in comparison.rows}
    assert max(errors["requests/s"], errors["tokens/s"], errors["TPOT, ms, mean"]) < 0.09
    assert any("nothing of speculation" in note for note in made.notes)
    assert made.scenario.workload.streams == 4


def test_older_guidellm_names_are_read(tmp_path: Path) -> None:
    older = json.loads(json.dumps(GUIDE).replace('"request_start_time"', '"start_time"').replace('"config"', '"args"'))
    older = json.loads(json.dumps(older).replace('"request_end_time"', '"end_time"'))
    assert load_of("guidellm", older, tmp_path) == load_of("guidellm", GUIDE, tmp_path)


def changed(content: Any, way: str, value: Any) -> Any:
    """Return a copy with another value at a dotted way."""
    made = json.loads(json.dumps(content))
    *path, last = [int(part) if part.isdigit() else part for part in way.split(".")]
    place = made
    for part in path:
        place = place[part]
    place[last] = value
    return made


WRONG: dict[str, tuple[str, Any, str]] = {
    "several": ("guidellm", GUIDE | {"benchmarks": GUIDE["benchmarks"] * 2}, "holds 2 benchmarks; give one: jq"),
    "an empty list": ("guidellm", [], "holds no list `benchmarks`"),
    "a sample": (
        "guidellm", changed(GUIDE, "benchmarks.0.metrics.request_totals.successful", 300), "has 40 of 300 requests",
    ),
    "a time that falls": (
        "guidellm", changed(GUIDE, "benchmarks.0.requests.successful.3.request_end_time", 5.0), "do not rise",
    ),
    "tokens in disorder": (
        "inference-perf", changed(REQUESTS, "2.info.response_metrics.output_token_times.1", 0.0), "the time left at",
    ),
    "a word": ("inference-perf", changed(STAGE, "successes.count", "many"), "successes.count = 'many'; needs a number"),
    "more requests": ("inference-perf", changed(STAGE, "successes.count", 80), "contradicts count / benchmark_time"),
    "longer answers": (
        "inference-perf",
        changed(changed(STAGE, "successes.output_len.mean", 118), "successes.output_tokens.mean", 118),
        "output_tokens_per_sec = .* contradicts",
    ),
    "slower": (
        "inference-perf", changed(changed(STAGE, "successes.latency.request_latency.mean", 9.0),
        "successes.latency.request_latency.max", 9.0), "exceeds concurrency",
    ),
    "a level that falls": ("inference-perf", changed(STAGE, "successes.output_len.p90", 1), "needs levels that rise"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_report_that_contradicts_itself_is_refused(tmp_path: Path, name: str) -> None:
    kind, content, says = WRONG[name]
    with pytest.raises(InputError, match=says):
        load_of(kind, content, tmp_path)


def test_cached_prompts_of_a_report_are_not_predicted(tmp_path: Path) -> None:
    content = changed(STAGE, "successes.prompt_tokens.cached", 0.62 * STAGE["successes"]["prompt_tokens"]["total"])
    made = specfleet.import_record(
        "inference-perf", write(tmp_path / "r.json", json.dumps(content)), tmp_path / "made.toml"
    )
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    assert comparison.line() == "not predicted: prefix hits of 62% are not modelled"
    assert {row.kind for row in comparison.rows} == {"input", "not predicted"}
    assert all((row.simulated is None) == (row.kind == "not predicted") for row in comparison.rows)


@pytest.mark.parametrize("name", FILES)
def test_mutated_reports_are_refused_in_a_line(tmp_path: Path, name: str) -> None:
    (kind, content), lines = FILES[name], []
    for seed in range(150):
        one, _ = mutated(json.loads(json.dumps(content)), random.Random(f"{name} {seed}"))
        try:
            load_of(kind, one, tmp_path, 4)
        except InputError as error:
            lines.append(str(error))
    assert not any("\n" in line for line in lines)
    assert 5 < len(lines) < 145
