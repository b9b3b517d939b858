"""Readers take a server's load, and a server comes back from its records: what was known before is read again."""

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import specfleet
from specfleet.calibration.readers.bench import read_bench
from specfleet.calibration.readers.load import Load, Spread, Way
from specfleet.calibration.readers.prometheus import histogram, read_scrapes
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.responses import read_aiperf
from specfleet.calibration.readers.served import inferred_profile
from specfleet.calibration.readers.vllm_log import read_vllm_log
from specfleet.calibration.readers.vllm_metrics import read_vllm_metrics
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.arrivals import Poisson
from specfleet.fleet.times.profile import HardwareProfile
from tests.helpers.loads import (
    DEPTH,
    ROUND_S,
    TOKEN_S,
    Served,
    aiperf_text,
    bench_text,
    load_in,
    log_text,
    mean,
    metrics_text,
    served,
    sglang_bench_text,
    sglang_log_text,
)  # fmt: skip
from tests.helpers.readings import LLAMA_CPP, write

AT = "llama-3.1-8b@h100"
KNOWN, PLAIN = served(), served(depth=0)
NOTHING = re.sub(r" \S+\n", " 0\n", metrics_text(KNOWN[:1]))


def scrapes(folder: Path, **form: bool) -> list[Path]:
    """Two scrapes, with a warm-up before the first."""
    before = write(folder / "before.txt", metrics_text(KNOWN[:9], **form))
    files = [before, write(folder / "after.txt", metrics_text([*KNOWN[:9], *KNOWN], **form))]
    for file, at_s in zip(files, (1000, 1030), strict=True):
        os.utime(file, (at_s, at_s))
    return files


def of_metrics(folder: Path) -> Recording:
    return read_vllm_metrics(scrapes(folder), max(one.end_s for one in KNOWN))


READ: dict[str, Callable[[Path], Recording]] = {
    "vLLM's metrics": of_metrics,
    "vllm bench serve": lambda folder: read_bench([write(folder / "bench.json", bench_text(KNOWN))]),
    "AIPerf": lambda folder: read_aiperf([write(folder / "export.jsonl", aiperf_text([KNOWN[0], *KNOWN]))], 4),
}


@pytest.mark.parametrize("name", READ)
def test_rates_and_times_are_those_of_the_requests(tmp_path: Path, name: str) -> None:
    recording = READ[name](tmp_path)
    load = load_in(recording)
    gaps_s = [gap for one in KNOWN for gap in one.gaps_s]
    assert load.requests == len(KNOWN)
    assert recording.counts.rounds == len(gaps_s)
    assert load.tokens_per_s == pytest.approx(
        sum(one.answer for one in KNOWN) / max(one.end_s for one in KNOWN), rel=0.04
    )
    assert load.in_flight == pytest.approx(4, rel=0.08)  # the last requests leave it emptier
    assert load.round_s == pytest.approx(mean(gaps_s))
    for found, known in (
        (load.ttft_s, [one.first_s - one.start_s for one in KNOWN]),
        (load.tpot_s, [one.tpot_s for one in KNOWN]),
        (load.new_tokens, [one.answer for one in KNOWN]),
    ):
        assert found is not None
        assert found.mean == pytest.approx(mean(known), rel=1e-6)


@pytest.mark.parametrize("name", READ)
def test_ways_to_the_time_of_a_round_agree_on_a_true_record(tmp_path: Path, name: str) -> None:
    load = load_in(READ[name](tmp_path))
    assert len(load.ways) == 4
    assert re.match(r"ways to the time of a round agree within [0-4]\.\d%", load.disagreement())


@pytest.mark.parametrize("name", ["vLLM's metrics", "vllm bench serve"])
def test_step_times_come_back(tmp_path: Path, name: str) -> None:
    profile = inferred_profile(load_in(READ[name](tmp_path)))
    assert profile is not None
    assert profile.verify.base_s == pytest.approx(ROUND_S, rel=0.03)
    assert profile.verify_prefill.per_token_s == pytest.approx(TOKEN_S, rel=0.25)  # prompts of a burst share a step
    assert all("inferred" in profile.sources[part] for part in ("draft", "verify", "decode", "verify_prefill"))


def test_steps_that_are_not_counted_are_inferred(tmp_path: Path) -> None:
    files, notes = scrapes(tmp_path), []
    for file in files:
        file.write_text(re.sub(r"vllm:iteration_tokens.*\n", "", file.read_text()))
    for given, seconds in ((files, max(one.end_s for one in KNOWN)), (files[1:], None)):
        load = load_in(read_vllm_metrics(given, seconds))
        profile = inferred_profile(load)
        assert (profile is None) == (seconds is None)
        assert profile is None or profile.verify.base_s == pytest.approx(ROUND_S, rel=0.01)
        notes += [note.rpartition(": ")[2] for note in load.notes]
    made = specfleet.import_record("vllm-metrics", files[1:], tmp_path / "made.toml", target=AT, draft="lookup")
    assert made.times.endswith("rooflines")  # not fitted
    assert [note.partition("a round ")[2] for note in notes] == [
        "are inferred from the time", "lengthen it unseen, so its time is left out; give two scrapes"
    ]  # fmt: skip


@pytest.mark.parametrize("value", [21.0, 25.0, 29.0])
def test_a_full_bucket_is_narrowed_around_its_mean(value: float) -> None:
    sums = {"x_sum": 99 * value + 35, "x_count": 100.0}
    counts = {"10": 0.0, "20": 0.0, "30": 99.0, "40": 100.0, "+Inf": 100.0}
    spread = histogram(sums | {f"x_bucket of le {bound}": count for bound, count in counts.items()}, "x", "file")
    assert spread is not None
    assert spread.quantiles["P50"] == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_prompts_lengthen_rounds_as_the_engine_reads_them(engine: str) -> None:
    own, others = 200.0, 0.3
    prefill_s, between = ROUND_S + TOKEN_S * own, others * (engine == "sglang")
    round_s = ROUND_S + others * TOKEN_S * own + between * ROUND_S
    load = Load(
        over="", running=4.0, prompt_tokens=Spread(own), prompts_per_round=own * others * 4 / 3,
        prefill_s=Spread(prefill_s), ways=(Way("known", "measured", round_s),),
    )  # fmt: skip
    known, unknown = (inferred_profile(one, engine) for one in (load, replace(load, prefill_s=None)))
    assert known is not None
    assert unknown is not None
    assert known.verify.base_s == pytest.approx(ROUND_S)
    assert known.verify_prefill.per_token_s == pytest.approx(TOKEN_S)
    assert unknown.verify.base_s + between * unknown.verify_prefill.mean_s(int(own), 0) == pytest.approx(round_s)


TEXTS: dict[str, Callable[[Sequence[Served], int], str]] = {
    "vllm-bench": bench_text,
    "sglang-bench": sglang_bench_text,
    "aiperf": lambda each, depth: aiperf_text([each[0], *each], depth),
}


@pytest.mark.parametrize("speculates", [True, False])
@pytest.mark.parametrize("kind", TEXTS)
def test_a_server_is_simulated_as_it_was(tmp_path: Path, kind: str, speculates: bool) -> None:
    depth = DEPTH if speculates else 0
    each = served(depth=depth, prefill_first=kind == "sglang-bench")
    text = TEXTS[kind](each, depth)
    stated = {"in_flight": 4} if kind == "aiperf" else {}
    made = specfleet.import_record(kind, write(tmp_path / "record.json", text), tmp_path / "made.toml", **stated)
    drafters, workload = made.scenario.drafters, made.scenario.workload
    assert (drafters.count, drafters.place) == ((1, "target") if speculates else (0, "own"))
    assert (workload.streams, workload.arrivals) == (4, None)
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    rows = {row.quantity: row for row in comparison.rows}
    for name in ("tokens/s", "requests/s", "TPOT, ms, mean", "TTFT, ms, mean"):
        assert rows[name].kind == "predicted"
        assert rows[name].error == pytest.approx(0, abs=0.08), name
    assert {row.quantity for row in comparison.rows if row.kind == "input"} == {
        "prompt, tokens", "answer, tokens", "in flight", "time of a round, ms", *(["tokens a round"] * speculates),
    }  # fmt: skip


def test_requests_that_arrive_by_themselves_are_a_trace(tmp_path: Path) -> None:
    each = served(requests=60, arrivals={"process": "poisson", "per_s": 1.5})
    text = bench_text(each, request_rate=1.5, max_concurrency=None)
    made = specfleet.import_record("vllm-bench", write(tmp_path / "b.json", text), tmp_path / "made.toml")
    trace = (tmp_path / "made-trace.csv").read_text().splitlines()
    assert trace[0] == "arrived_at,num_prefill_tokens,num_decode_tokens"
    assert float(trace[5].split(",")[0]) == pytest.approx(each[4].start_s - each[0].start_s)
    assert made.inputs[2] == "requests/s"
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    in_flight = next(row for row in comparison.rows if row.quantity == "in flight")
    assert (in_flight.kind, in_flight.error) == ("predicted", pytest.approx(0, abs=0.2))


@pytest.mark.parametrize(
    ("line", "value", "labels", "at_s"),
    [
        ('vllm:x_total{a="b}"} 3 # {trace_id="1"} 1.0', 3, {"a": "b}"}, None),
        ('vllm:x_total{a="b"} 3 1700000000.5 # {trace_id="1"} 1.0 1699.5', 3, {"a": "b"}, 1700000000.5),
        ('vllm:x_bucket{le="+Inf"} 7 # {trace_id="1"} 0.3', 7, {"le": "+Inf"}, None),
        ("vllm:x_total 3 # {} 1.0", 3, {}, None),
        ("vllm:x_total 3 1700000000000", 3, {}, 1.7e9),
        ("vllm:x_total 3 1700000000000.0", 3, {}, 1.7e9),
        ("vllm:x_total\t3", 3, {}, None),
        (r'vllm:x_total{a="\"q\\n # \\"} 3', 3, {"a": '"q\\n # \\'}, None),
        ("vllm:x +Inf", math.inf, {}, None),
    ],
)
def test_prometheus_text_is_read_as_its_client_writes_it(
    tmp_path: Path, line: str, value: float, labels: dict[str, str], at_s: float | None
) -> None:
    file = write(tmp_path / "metrics.txt", f"# TYPE vllm:x counter\n{line}\nvllm:y NaN\n")
    one, other = read_scrapes([file], "vllm:")[0]
    assert (one.value, one.labels, one.at_s) == (value, labels, at_s)
    assert math.isnan(other.value)
    write(file, "vllm:x 1 5\n# EOF\n")
    assert read_scrapes([file], "vllm:")[0][0].at_s == 5


def test_older_versions_names_are_read(tmp_path: Path) -> None:
    newer, older = (load_in(read_vllm_metrics(scrapes(tmp_path, older=form), 30.0)) for form in (False, True))
    assert older.round_s == newer.round_s
    assert older.kv_share == newer.kv_share == 0.25
    assert older.tpot_s is not None
    assert older.tpot_s.mean == pytest.approx(newer.tpot_s.mean if newer.tpot_s else 0, rel=0.1)
    assert (newer.preemptions, newer.kv_tokens) == (0, 16000)


def test_the_time_between_scrapes_is_stated_or_by_their_files(tmp_path: Path) -> None:
    files = scrapes(tmp_path)
    os.utime(files[0], (1000, 1000))
    os.utime(files[1], (1050, 1050))
    load = load_in(read_vllm_metrics(files))
    assert "assumed: by the files' times" in load.over
    assert load_in(read_vllm_metrics(files, 25.0)).requests_per_s == pytest.approx(len(KNOWN) / 25)


@pytest.mark.parametrize(
    ("seconds", "left_out", "says"),
    [
        (None, "", r"are 1 s apart \(assumed: by the files' times\), but steps between them took .*: give --seconds"),
        (None, "inter_token", r"are 1 s apart .*, but latencies sum to .* in flight, and the gauges say 4 and 4"),
        (1.0, "", r"are 1 s apart \(stated\), but steps between them took"),
    ],
)
def test_a_time_that_counters_contradict_is_refused(
    tmp_path: Path, seconds: float | None, left_out: str, says: str
) -> None:
    files = scrapes(tmp_path)
    for number, file in enumerate(files):
        kept = [line for line in file.read_text().splitlines() if not left_out or left_out not in line]
        write(file, "\n".join(kept) + "\n")
        os.utime(file, (1000 + number, 1000 + number))
    with pytest.raises(InputError, match=says):
        read_vllm_metrics(files, seconds)


def test_a_stated_time_that_gauges_contradict_is_noted(tmp_path: Path) -> None:
    notes = load_in(read_vllm_metrics(scrapes(tmp_path), 300.0)).notes
    assert any(re.search(r"300 s apart \(stated\), but latencies .* gauges say 4 and 4", note) for note in notes)


def test_a_scrape_alone_has_totals_and_inferred_rates(tmp_path: Path) -> None:
    load = load_in(read_vllm_metrics(scrapes(tmp_path)[:1]))
    assert load.requests == 9
    assert "(inferred)" in load.over
    assert (load.busy_share, load.round_s) == (
        None,
        pytest.approx(mean([gap for one in KNOWN[:9] for gap in one.gaps_s])),
    )


def test_an_idle_server_has_arrivals(tmp_path: Path) -> None:
    files = scrapes(tmp_path)
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=100.0)
    assert made.scenario.workload.arrivals == Poisson(per_s=len(KNOWN) / 100)
    assert any("requests ran" in note for note in made.notes)


def test_requests_that_wait_show_the_most_that_run(tmp_path: Path) -> None:
    text = log_text([4, 4, 4]).replace("'max_num_seqs': 8", "")
    made = specfleet.import_record("vllm-log", write(tmp_path / "s.log", text), tmp_path / "made.toml")
    assert made.scenario.verifiers.max_num_seqs == 4
    assert "max_num_seqs = 4 is inferred: 1 requests waited while 4 ran" in (tmp_path / "made.toml").read_text()
    idle = write(tmp_path / "t.log", text.replace("Waiting: 1", "Waiting: 0"))
    few = write(tmp_path / "u.log", text.replace("Running: 4", "Running: 14"))  # wait for their prompts, not for seats
    for file in (idle, few):
        assert specfleet.import_record("vllm-log", file, tmp_path / "made.toml").scenario.verifiers.max_num_seqs == 256


@pytest.mark.parametrize(("blocks", "inferred", "said"), [
    ("", (256, pytest.approx(1000, rel=0.3)), "kv_tokens = "), ("1000", (256, 16000), "so no limit is inferred: "),
])  # fmt: skip
def test_a_full_cache_limits_no_number_of_requests(tmp_path: Path, blocks: str, inferred: Any, said: str) -> None:
    files = scrapes(tmp_path)
    for waited_s, file in enumerate(files):
        text = re.sub(r"(cache_usage_perc\{.*\}) .*", r"\1 0.97", file.read_text())
        text = re.sub(r"(queue_time_seconds_sum\{.*\}) .*", rf"\1 {200 * waited_s}", text)
        file.write_text(text if blocks else text.replace("cache_config_info", "unknown"))
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=30.0)
    verifiers = made.scenario.verifiers
    assert (verifiers.max_num_seqs, verifiers.kv_tokens) == inferred
    assert any(said in note for note in made.notes)
    assert not any("to hold these" in note for note in made.notes)


def test_a_disagreement_is_said(tmp_path: Path) -> None:
    files = scrapes(tmp_path)
    sums = re.search(r"vllm:request_time_per_output_token_seconds_sum\{.*\} (\S+)", files[1].read_text())
    assert sums is not None
    write(files[1], files[1].read_text().replace(sums[1], str(2 * float(sums[1]))))
    said = load_in(read_vllm_metrics(files, 30.0)).disagreement()
    assert re.fullmatch(r"ways .* disagree: up to \d+\.\d%, TPOT x tokens a round the farthest", said)


def test_servers_without_speculation_have_a_load_only(tmp_path: Path) -> None:
    for recording in (
        read_vllm_metrics([write(tmp_path / "m.txt", metrics_text(PLAIN, depth=0))]),
        read_vllm_log([write(tmp_path / "s.log", log_text([4, 4, 4], depth=0))]),
        read_bench([write(tmp_path / "b.json", bench_text(PLAIN, depth=0))]),
        read_aiperf([write(tmp_path / "a.jsonl", aiperf_text(PLAIN, depth=0))]),
    ):
        assert recording.counts is None
        assert load_in(recording).tokens_per_round == 1.0
        assert load_in(recording).round_s


def test_engines_of_one_server_share_its_requests(tmp_path: Path) -> None:
    text = metrics_text(KNOWN[:60]) + metrics_text(KNOWN[60:], engine=1)
    made = specfleet.import_record("vllm-metrics", write(tmp_path / "m.txt", text), tmp_path / "made.toml")
    assert made.scenario.verifiers.count == 2
    assert made.load is not None
    assert made.load.kv_share == 0.25


WRONG = {  # beside what `test_contradictions.py` has of any scrape
    "restart": (r"(vllm:generation_tokens_total\{.*\}) \S+", r"\1 3", "is below the scrape before it, .*: a restart?"),
    "NaN": (r"(vllm:time_to_first_token_seconds_sum\{.*\}) \S+", r"\1 NaN", "_sum = nan; allowed: numbers from 0"),
    "another server": (r'engine="0"', 'engine="1"', "lacks vllm:.* of .*before.txt, line .: another server?"),
    "buckets": (r'(vllm:e2e.*_bucket\{.*le="\+Inf"\}) \S+', r"\1 500", "buckets of vllm:e2e_.* contradict its count"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_scrape_is_refused_in_a_line(tmp_path: Path, name: str) -> None:
    pattern, into, says = WRONG[name]
    files = scrapes(tmp_path)
    write(files[1], re.sub(pattern, into, files[1].read_text()))
    with pytest.raises(InputError, match=rf"after.txt.*: .*{says}"):
        read_vllm_metrics(files, 30.0)


def test_what_a_scrape_lacks_is_left_out(tmp_path: Path) -> None:
    files = scrapes(tmp_path)
    flops = files[1].read_text() + 'vllm:estimated_flops_per_gpu_total{engine="0"} 3.3e+21\n'  # an hour of an H100
    assert read_vllm_metrics([files[0], write(tmp_path / "flops.txt", flops)], 30.0) == read_vllm_metrics(files, 30.0)
    for file in files:
        write(file, re.sub(r"vllm:(inter_token|request_prefill|request_prompt)\S+ \S+\n", "", file.read_text()))
    load = load_in(read_vllm_metrics(files, 30.0))
    assert (load.gap_s, load.prefill_s, load.prompt_tokens) == (None, None, None)
    assert load.ways[0].name == "rows / (rounds/s)"
    for text, said in (
        (NOTHING, "counts no token: an idle server shows no load"),
        (re.sub(r"vllm:spec.*\n", "", metrics_text(KNOWN)), "the server drafts, and vllm:spec.* does not count it"),
        (re.sub(r"vllm:[^s].*\n|vllm:spec.*\n", "", metrics_text(KNOWN)), "and a load"),
    ):
        with pytest.raises(InputError, match=said):
            read_vllm_metrics([write(tmp_path / "x.txt", text)])


def test_an_idle_moment_predicts_nothing(tmp_path: Path) -> None:
    text = re.sub(r"vllm:iteration.*\n", "", metrics_text(KNOWN)).replace('"} 4\n', '"} 0\n', 1)
    times: dict[str, Any] = {"target": AT, "draft": "eagle3"}
    made = specfleet.import_record("vllm-metrics", write(tmp_path / "m.txt", text), tmp_path / "made.toml", **times)
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    assert comparison.line() == "not predicted: requests in flight are not known over its time"
    assert "1 requests in flight, assumed: the record does not say" in (tmp_path / "made.toml").read_text()


def test_requests_in_flight_count_before_they_finish(tmp_path: Path) -> None:
    text, few = metrics_text(KNOWN), metrics_text(KNOWN[:5])
    known = load_in(read_vllm_metrics([write(tmp_path / "a.txt", text)]))
    for name in ("e2e_request_latency", "request_inference_time", "request_decode_time", "request_queue_time"):
        text = re.sub(rf"(vllm:{name}.*\n)+", "".join(re.findall(rf"vllm:{name}.*\n", few)), text)
    load = load_in(read_vllm_metrics([write(tmp_path / "b.txt", text)]))
    assert (load.requests, load.in_flight, load.running) == (5, *map(pytest.approx, (known.in_flight, known.running)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "llama-3.1-8b@h100"}, "needs --draft MODEL, lookup or suffix"),
        ({"target": "llama-3.1-8b@h100", "draft": "lookup", "verify_ms": 3, "draft_ms": 1}, "leave --draft-ms"),
        ({"draft": "lookup"}, "needs --target MODEL@DEVICE"),
        ({"seconds": 0.0}, "--seconds 0.0: needs a time above 0"),
        ({"in_flight": 4}, "--in-flight: import vllm-metrics does not read it; it reads .*, --depth, --seconds"),
        ({"target": "llama-3.1-8b@abacus", "draft": "lookup"}, "does not ship"),
    ],
)
def test_options_without_effect_are_refused(tmp_path: Path, options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        specfleet.import_record("vllm-metrics", scrapes(tmp_path), tmp_path / "made.toml", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draft", "kind"), [("ngram", "lookup"), ("suffix", "suffix"), ("eagle3", "eagle"), ("llama-3.2-1b", "model")]
)
def test_an_estimated_target_is_predicted(tmp_path: Path, draft: str, kind: str) -> None:
    times: dict[str, Any] = {"seconds": 30.0, "target": AT, "draft": draft, "fit": False}
    made = specfleet.import_record("vllm-metrics", scrapes(tmp_path), tmp_path / "made.toml", **times)
    assert made.scenario.drafters.kind == kind
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    assert "estimated" in comparison.times
    assert next(row.kind for row in comparison.rows if row.quantity == "time of a round, ms") == "predicted"


@pytest.mark.parametrize(
    ("kind", "text", "title", "row_s"),
    [
        ("vllm-bench", bench_text(KNOWN), "vLLM", 4.05e-5),
        ("sglang-bench", sglang_bench_text(KNOWN), "SGLang", 0.0),
        ("sglang-log", sglang_log_text([4, 4, 4]), "SGLang", 0.0),
        ("llama-cpp-metrics", LLAMA_CPP, "CUDA graphs", 0.0),
    ],
)
def test_a_server_is_its_own_engine(tmp_path: Path, kind: str, text: str, title: str, row_s: float) -> None:
    file = write(tmp_path / "record.json", text)
    times: dict[str, Any] = {"target": "llama-3.1-8b@h100", "draft": "lookup", "fit": False}
    made = specfleet.import_record(kind, file, tmp_path / "made.toml", **times)
    profile = made.scenario.profile
    assert isinstance(profile, HardwareProfile)
    assert f"on h100, bf16, {title}, one pass" in profile.sources["verify"]
    assert profile.verify.per_row_s == row_s
    assert made.scenario.verifiers.prefill_first == (title == "SGLang")


def test_a_held_load_names_the_command_that_holds_its_rate(tmp_path: Path) -> None:
    files, out = scrapes(tmp_path), tmp_path / "made.toml"
    seconds = sum(one.end_s - one.start_s for one in KNOWN) / 3.9
    made = specfleet.import_record("vllm-metrics", files, out, seconds=seconds)
    (note,) = [note for note in made.notes if note.startswith("closed loop: ")]
    assert note.partition("; ")[2] in " ".join(out.read_text().replace("#", "").split())
    changes = [text.partition("=")[::2] for text in re.findall(r"--set (\S+)", note)]
    rate = specfleet.simulate(
        out, {key: float(value) if "." in value else value for key, value in changes} | {"workload.streams": 0}
    )
    assert rate.metrics["carried_requests_per_s"].value == pytest.approx(len(KNOWN) / seconds, rel=0.1)


def test_cells_that_hold_requests_say_so() -> None:
    vary, load = {"drafters.depth": [2, 3]}, {"requests": 20, "new_tokens": 20}
    held = specfleet.sweep("serving", vary, seeds=1, workload=load | {"streams": 4})
    assert any(note.startswith("closed loop: each cell holds 4 requests") for note in held.notes)
    arrived = {"streams": 0, "arrivals": {"process": "poisson", "per_s": 2.0}}
    assert not any(
        "closed loop" in note for note in specfleet.sweep("serving", vary, seeds=1, workload=load | arrived).notes
    )


WIDE = (0.01, 0.02, 0.05, 0.1, 1.0, 50.0, 100.0, 50000.0)  # prompts of 200 tokens are in a bucket up to 50,000


@pytest.mark.parametrize("times", [{}, {"target": "llama-3.1-8b@h100", "draft": "llama-3.2-1b"}], ids=["", "estimated"])
def test_bounds_of_buckets_fit_the_cache_that_served(
    tmp_path: Path, times: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.helpers.loads.BOUNDS", WIDE)
    files, out = scrapes(tmp_path), tmp_path / "made.toml"
    made = specfleet.import_record("vllm-metrics", files, out, seconds=30.0, **times)
    assert any("the KV cache has 16000 tokens" in note for note in made.notes)
    assert specfleet.compare_load(made) is not None


def test_long_prompts_of_one_client_are_busy_time(tmp_path: Path) -> None:
    requests = served(requests=20, streams=1, prompt_tokens=2000, new_tokens=16)
    files = [write(tmp_path / f"{end}.txt", metrics_text(requests[:end])) for end in (2, 20)]
    span_s = requests[-1].end_s - requests[1].end_s
    assert load_in(read_vllm_metrics(files, span_s)).busy_share == pytest.approx(1, abs=0.02)


def test_a_mean_between_whole_requests_in_flight_arrives(tmp_path: Path) -> None:
    served_s = sum(one.end_s - one.start_s for one in KNOWN)
    for in_flight, seen, arrives in ((3.9, 4, False), (3.9, 0, False), (3.9, 6, True), (4.45, 4, True)):
        given = scrapes(tmp_path), tmp_path / "made.toml"
        file = given[0][1]
        file.write_text(re.sub(r"(requests_running.* )4\b", rf"\g<1>{seen}", file.read_text()))
        made = specfleet.import_record("vllm-metrics", *given, seconds=served_s / in_flight)
        assert (made.scenario.workload.arrivals is not None) == arrives
        assert ("requests/s" in made.inputs) == arrives
