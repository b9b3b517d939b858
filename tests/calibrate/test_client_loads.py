"""Clients' files, or who states it, say how requests came: one after another, at once, or by themselves."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specfleet
from specfleet.calibration.readers.bench import read_bench
from specfleet.calibration.readers.clients import Timed, make_load
from specfleet.fleet.errors import InputError
from tests.helpers.loads import DEPTH, Served, aiperf_text, bench_text, load_in, served, sglang_bench_text
from tests.helpers.readings import write

KNOWN, PLAIN = served(), served(depth=0)


def older_bench_text(**settings: Any) -> str:
    """The file of a `vllm bench serve` that writes no start times; its requests have no streams of their own."""
    content = json.loads(bench_text(KNOWN)) | {"duration": KNOWN[-1].end_s, "request_rate": "inf"} | settings
    return json.dumps({name: value for name, value in content.items() if name != "start_times"}) + "\n"


BENCHES: dict[str, Callable[..., str]] = {
    "sglang-bench": lambda **settings: sglang_bench_text(KNOWN, **settings),
    "vllm-bench": older_bench_text,
}


@pytest.mark.parametrize("kind", [*BENCHES, "vllm-bench, with starts"])
@pytest.mark.parametrize(
    ("settings", "arrivals"),
    [
        ({}, None),
        ({"max_concurrency": None, "request_rate": 2.5}, "poisson"),
        ({"max_concurrency": None}, "trace"),
        ({"max_concurrency": 120}, "trace"),
        ({"max_concurrency": None, "request_rate": "trace"}, "poisson"),
    ],
)
def test_settings_of_a_client_say_how_requests_came(
    tmp_path: Path, kind: str, settings: dict[str, Any], arrivals: str | None
) -> None:
    text, known = BENCHES[kind](**settings) if kind in BENCHES else bench_text(KNOWN, **settings), arrivals
    if kind not in BENCHES:
        kind, known = "vllm-bench", arrivals and "trace"
    file = write(tmp_path / "b.jsonl", text)
    workload = specfleet.import_record(kind, file, tmp_path / "made.toml").scenario.workload
    assert (workload.arrivals.__struct_config__.tag if workload.arrivals else None) == known
    assert arrivals or workload.streams == 4


@pytest.mark.parametrize("kind", [*BENCHES, "aiperf"])
def test_how_requests_came_is_asked_where_no_setting_says(tmp_path: Path, kind: str) -> None:
    text = aiperf_text(KNOWN) if kind == "aiperf" else BENCHES[kind](request_rate=100.0)
    file, out = write(tmp_path / "b.jsonl", text), tmp_path / "made.toml"
    with pytest.raises(InputError, match="does not say how requests came; give --in-flight: "):
        specfleet.import_record(kind, file, out)
    assert specfleet.import_record(kind, file, out, in_flight=5).scenario.workload.streams == 5
    assert specfleet.import_record(kind, file, out, in_flight=0).scenario.workload.arrivals is not None


def test_a_statement_that_the_settings_contradict_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "b.json", bench_text(KNOWN))
    with pytest.raises(InputError, match="--in-flight 8 contradicts its settings, which say 4; leave it out"):
        specfleet.import_record("vllm-bench", file, tmp_path / "made.toml", in_flight=8)


def test_requests_in_turn_need_no_start_times(tmp_path: Path) -> None:
    stated, inferred = (
        load_in(read_bench([write(tmp_path / "b.json", text)])) for text in (bench_text(KNOWN), older_bench_text())
    )
    assert (inferred.in_flight, inferred.round_s) == (4, pytest.approx(stated.round_s))
    assert inferred.requests_per_s == pytest.approx(stated.requests_per_s, rel=0.06)
    assert inferred.tokens_per_s == pytest.approx(stated.tokens_per_s, rel=0.06)
    assert inferred.over.endswith("`vllm bench serve`, which has no starts")


def test_ranks_of_sglang_share_its_limit(tmp_path: Path) -> None:
    server = {"dp_size": 2, "speculative_num_steps": DEPTH, "max_running_requests": 64}
    load = load_in(read_bench([write(tmp_path / "b.jsonl", sglang_bench_text(KNOWN, server_info=server))]))
    assert (load.engines, load.in_flight, load.max_num_seqs) == (2, 4, 32)


@pytest.mark.parametrize("kind", BENCHES)
def test_a_file_of_several_runs_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match="holds 2 runs; give a file with the line of one"):
        read_bench([write(tmp_path / "b.jsonl", 2 * BENCHES[kind]())])


def test_a_run_of_sglangs_benchmark_adds_up(tmp_path: Path) -> None:
    for wrong, said in (
        ({"completed": 3}, "completed = 3 contradicts the entries of output_lens above 0 = 120"),
        ({"total_output_tokens": 5}, "total_output_tokens = 5 contradicts the sum of output_lens"),
        ({"mean_ttft_ms": 1.25}, "mean_ttft_ms = 1.25 contradicts the mean of ttfts, in ms"),
        ({"ttfts": [0.5]}, "have 1, 1, 120, 120, 120, 1 entries; needs as many each"),
        ({"accept_length": 5.5}, "accept_length = 5.5, speculative_num_steps = 3; needs 1 to 4"),
        ({"server_info": None}, "lacks speculative_num_steps"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            read_bench([write(tmp_path / "b.jsonl", sglang_bench_text(KNOWN, **wrong))])
    assert read_bench([write(tmp_path / "b.jsonl", sglang_bench_text(KNOWN, server_info=None))], 3).counts.depth == 3


DRAWN = np.random.default_rng(0)
CAME = {  # starts, latencies and the rate of requests that do not follow each other
    "a burst": (np.linspace(0.0, 0.1, 100), np.full(100, 5.0), 100 / 5.1),
    "at once": (np.zeros(100), np.full(100, 5.0), 20.0),
    "evenly": (0.25 * np.arange(200), DRAWN.uniform(0.9, 1.0, 200), 4.0),
    "at random": (DRAWN.exponential(1 / 200, 16000).cumsum(), np.full(16000, 5.0), 200.0),
}


@pytest.mark.parametrize("how", CAME)
def test_requests_that_do_not_follow_each_other_arrive(how: str) -> None:
    starts_s, latencies_s, per_s = CAME[how]
    ends_s = starts_s + latencies_s
    times = [Timed(start, start, end, 9, 50) for start, end in zip(starts_s, ends_s, strict=True)]
    load = make_load(times, 0, 1.0, "", 0)
    assert load is not None
    assert len(load.arrivals) == len(starts_s)
    assert load.requests_per_s == pytest.approx(per_s, rel=0.03)
    assert load.tokens_per_s == pytest.approx(50 * per_s, rel=0.12)  # the server fills up at first
    assert load.in_flight == pytest.approx(per_s * latencies_s.mean(), rel=0.12)


def test_few_requests_that_follow_each_other_keep_their_rate(tmp_path: Path) -> None:
    load = load_in(read_bench([write(tmp_path / "b.json", bench_text(served(requests=16)))]))
    assert load.in_flight == 4
    assert load.requests_per_s == pytest.approx(len(KNOWN) / KNOWN[-1].end_s, rel=0.08)


def test_requests_that_failed_leave_no_lengths(tmp_path: Path) -> None:
    content = json.loads(bench_text(KNOWN))
    failed = {"output_lens": 0, "ttfts": 0.0, "itls": [], "errors": "Bad Request"}
    for name, value in failed.items():
        content[name][:10] = [value] * 10
    recording = read_bench([write(tmp_path / "b.json", json.dumps(content | {"completed": len(KNOWN) - 10}))])
    assert len(recording.lengths) == load_in(recording).requests == len(KNOWN) - 10
    assert recording.counts.notes[0].startswith("10 requests failed: their rounds count")
    assert load_in(recording).notes == ()
    assert all(map(min, recording.lengths))
    with pytest.raises(InputError, match="have 120, 120, 120, 120, 120, 1 entries; needs as many each"):
        read_bench([write(tmp_path / "b.json", json.dumps(content | {"errors": ["Bad Request"]}))])


def test_the_chunk_of_a_chats_role_is_no_round(tmp_path: Path) -> None:
    content = json.loads(bench_text(KNOWN))
    chat = content | {"backend": "openai-chat", "itls": [[1e-4, *gaps_s] for gaps_s in content["itls"]]}
    plain_s, chat_s = (
        load_in(read_bench([write(tmp_path / "b.json", json.dumps(each))])).round_s for each in (content, chat)
    )
    assert chat_s == plain_s


@pytest.mark.parametrize(
    ("each", "tokens_per_round", "chunks", "way", "says"),
    [
        (KNOWN, 2.0, 0.05, "rows / (rounds/s)", "came in a chunk with others"),
        (PLAIN, 1.0, 0.05, "TPOT x", "came in a chunk with others"),
        (KNOWN, 2.0, 1.0, "rows / (rounds/s)", "more chunks than rounds"),
    ],
)
def test_gaps_of_other_chunks_are_no_rounds(
    each: list[Served], tokens_per_round: float, chunks: float, way: str, says: str
) -> None:
    requests = [
        Timed(one.start_s, one.first_s, one.end_s, 200, one.answer, [0.1] * int(one.answer * chunks)) for one in each
    ]
    rounds = sum(len(one.session) for one in each) if tokens_per_round > 1 else 0
    load = make_load(requests, rounds, tokens_per_round, "a client", 4)
    assert load is not None
    assert load.ways[0].name.startswith(way)
    assert says in load.notes[0]
    assert "disagree" in load.disagreement()


@pytest.mark.parametrize("requests", [2, 10, 40])
def test_a_client_alone_has_a_request_each_latency(tmp_path: Path, requests: int) -> None:
    alone = served(requests, 1)
    file = write(tmp_path / "b.json", bench_text(alone, max_concurrency=1))
    made = specfleet.import_record("vllm-bench", file, tmp_path / "made.toml")
    rows = {row.quantity: row for row in specfleet.compare_load(made).rows}  # type: ignore[union-attr]
    latency_s = sum(one.end_s - one.start_s for one in alone) / requests
    assert rows["requests/s"].observed == pytest.approx(1 / latency_s)
    assert rows["in flight"].simulated == pytest.approx(1)
    assert rows["TTFT, ms, mean"].error == pytest.approx(0, abs=0.01)
    assert rows["requests/s"].error == pytest.approx(0, abs=0.15 if requests < 10 else 0.04)


def test_a_short_closed_loop_is_as_fast_as_a_long_one() -> None:
    for count in (5, 40):
        starts_s = [2.0 * (number // 4) for number in range(count)]
        load = make_load([Timed(at, at + 0.2, at + 2.0, 300, 100) for at in starts_s], 0, 1.0, "a client", 4)
        assert load is not None
        assert (load.requests_per_s, load.in_flight) == (pytest.approx(2.0), 4)


@pytest.mark.parametrize(
    ("limit", "asks", "in_flight"), [(2, True, 4.0), (4, False, 4.0), (5, False, 5.0), (8, False, 4.0)]
)
def test_requests_in_flight_contradict_another_limit(limit: int, asks: bool, in_flight: float) -> None:
    requests = [Timed(at, at + 0.2, at + 2.0, 300, 100) for at in (2.0 * (number // 4) for number in range(40))]
    load = make_load(requests, 0, 1.0, "a client", limit)
    assert load is not None
    assert bool(load.asks) == asks
    assert asks or load.in_flight == pytest.approx(in_flight)
    assert any("on average" in note for note in load.notes) == (limit == 8)
