"""Sessions as records of other engines, written to files and read back: one function for each form of records."""

import json
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from specfleet.calibration.readers.bench import read_bench
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.responses import read_aiperf, read_sglang, read_vllm
from specfleet.calibration.readers.vllm_log import read_vllm_log
from specfleet.calibration.readers.vllm_metrics import read_vllm_metrics
from specfleet.fleet.acceptance.models import AcceptanceModel, expected_committed
from tests.helpers import engines

DEPTH = 4
Sessions = list[list[tuple[int, int]]]


def round_of(least: int) -> st.SearchStrategy[tuple[int, int]]:
    """Rounds that drafted `least` to DEPTH tokens."""
    drafted = st.integers(least, DEPTH)
    return drafted.flatmap(lambda tokens: st.tuples(st.just(tokens), st.integers(0, tokens)))


def sessions_of(least: int) -> st.SearchStrategy[Sessions]:
    return st.lists(st.lists(round_of(least), min_size=1, max_size=20), min_size=1, max_size=4)


full, mixed = sessions_of(DEPTH), sessions_of(1)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def vllm(folder: Path, sessions: Sessions, detail: str = "summary") -> Recording:
    answers = [engines.vllm_answer(engines.vllm_stats(session, DEPTH, detail)) for session in sessions]
    return read_vllm([engines.write_lines(folder / "answers.jsonl", answers)])


def vllm_list(folder: Path, sessions: Sessions) -> Recording:
    stats = [engines.vllm_stats(session, DEPTH, digits=17) for session in sessions]
    return read_vllm([write(folder / "answers.json", json.dumps(stats, indent=1))])


def aiperf(folder: Path, sessions: Sessions) -> Recording:
    lines = [engines.aiperf_line(session, DEPTH) for session in sessions]
    return read_aiperf([engines.write_lines(folder / "profile_export.jsonl", lines)])


def sglang(folder: Path, sessions: Sessions) -> Recording:
    answers = [engines.sglang_answer(session, DEPTH, older=len(session) % 2 == 0) for session in sessions]
    return read_sglang([engines.write_lines(folder / "answers.jsonl", answers)])


def scrape(folder: Path, sessions: Sessions) -> Recording:
    return read_vllm_metrics([write(folder / "metrics.txt", engines.prometheus(dict(enumerate(sessions)), DEPTH))])


def two_scrapes(folder: Path, sessions: Sessions) -> Recording:
    """The first request precedes the first scrape, and repeats with the others."""
    before = write(folder / "before.txt", engines.prometheus({0: sessions[0]}, DEPTH))
    together = [pair for session in sessions for pair in session]
    after = write(folder / "after.txt", engines.prometheus({0: [*sessions[0], *together]}, DEPTH))
    return read_vllm_metrics([before, after])


def vllm_log(folder: Path, sessions: Sessions) -> Recording:
    return read_vllm_log([write(folder / "log", "".join(engines.vllm_log(session, DEPTH) for session in sessions))])


READ: dict[str, Callable[[Path, Sessions], Recording]] = {
    "vLLM, summary": vllm,
    "vLLM, a list": vllm_list,
    "vLLM, by draft length": lambda folder, sessions: vllm(folder, sessions, "by-length"),
    "vLLM, detailed": lambda folder, sessions: vllm(folder, sessions, "detailed"),
    "vLLM, a scrape": scrape,
    "vLLM, two scrapes": two_scrapes,
    "AIPerf": aiperf,
    "SGLang": sglang,
}
TELL_DRAFTS = ("vLLM, by draft length", "vLLM, detailed")


def _vllm_plain(folder: Path, session: list[tuple[int, int]], more: int) -> Recording:
    answer = engines.vllm_answer(engines.vllm_stats(session, DEPTH, "detailed"))
    answer["usage"]["completion_tokens"] += more
    return read_vllm([write(folder / "answer.json", json.dumps(answer))])


def _aiperf_plain(folder: Path, session: list[tuple[int, int]], more: int) -> Recording:
    line = engines.aiperf_line(session, DEPTH)
    line["spec_decode_acceptance"]["completion_tokens"] += more
    return read_aiperf([engines.write_lines(folder / "profile_export.jsonl", [line])])


def _scrape_plain(folder: Path, session: list[tuple[int, int]], more: int) -> Recording:
    tokens = 1 + len(session) + sum(accepted for _, accepted in session) + more
    labels = '{engine="0",model_name="m"}'
    text = f"vllm:generation_tokens_total{labels} {tokens}\nvllm:time_to_first_token_seconds_count{labels} 1\n"
    return read_vllm_metrics([write(folder / "metrics.txt", engines.prometheus({0: session}, DEPTH) + text)])


def _bench_plain(folder: Path, session: list[tuple[int, int]], more: int) -> Recording:
    accepted = sum(accepted for _, accepted in session)
    passed = engines.survivors(engines.histogram_of(session, DEPTH))
    content = {
        "completed": 1, "output_lens": [1 + len(session) + accepted + more], "spec_decode_num_drafts": len(session),
        "spec_decode_draft_tokens": DEPTH * len(session), "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": [count / len(session) for count in passed],
    }  # fmt: skip
    return read_bench([write(folder / "bench.json", json.dumps(content))])


WITH_PLAIN_STEPS: dict[str, Callable[[Path, list[tuple[int, int]], int], Recording]] = {
    "vLLM": _vllm_plain,
    "AIPerf": _aiperf_plain,
    "vLLM, a scrape": _scrape_plain,
    "vllm bench serve": _bench_plain,
}
"""A record of one answer, with so many tokens more than its rounds have."""


def counted(recording: Recording) -> tuple[int, int, int]:
    """Rounds, accepted draft tokens, and the depth of the drafts."""
    return recording.counts.rounds, recording.counts.accepted, recording.counts.depth


def mean_of(recording: Recording) -> float:
    model = recording.counts.acceptance
    assert isinstance(model, AcceptanceModel)
    return expected_committed(model, recording.counts.depth)


LOG = (
    "INFO SpecDecoding metrics: Mean acceptance length: 3.24, Accepted throughput: 46.40 tokens/s, Drafted throughput: "
    "82.80 tokens/s, Accepted: 464 tokens, Drafted: 828 tokens, Per-position acceptance rate: 0.763, 0.623, 0.459, "
    "0.396, Avg Draft acceptance rate: 56.0%\n"
)

LLAMA_CPP = """\
llamacpp:prompt_tokens_total 240
llamacpp:tokens_predicted_total 384
llamacpp:tokens_predicted_seconds_total 0.999141
llamacpp:n_decode_total 174
llamacpp:spec_decode_num_draft_tokens_total 620
llamacpp:spec_decode_num_accepted_tokens_total 210
llamacpp:spec_decode_num_drafts_total 155
llamacpp:n_busy_slots_per_decode 1
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 72
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 57
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 43
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="3"} 38
"""
"""llama.cpp's metrics after six answers of 64 tokens, drafts of 4."""
