"""Records of other engines, as `import` reads them: a kind for each form."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.helpers import engines, loads, readings
from tests.inputs.kinds import Kind

CALIBRATE_DATA = Path(__file__).parents[1] / "calibrate" / "data"
ROUNDS = [[(4, 4), (4, 1), (4, 0), (4, 1)], [(4, 2), (4, 3)], [(4, 0)]]  # of three requests: drafted, accepted


def imported(kind: str, file: str, form: str, content: Callable[[], str], *options: str) -> Kind:
    """Return the kind of another engine's records, which `import` reads."""
    command = ("import", kind, file, "-o", "made.toml", "--json", "--draft-ms", "2", "--verify-ms", "25", *options)
    return Kind(lambda folder: write_text(folder / file, content()), (file,), form, (command,))


def write_text(path: Path, text: str) -> None:
    """Write a file."""
    path.write_text(text)


READER_KINDS: dict[str, Kind] = {
    "vLLM's answers": imported(
        "vllm", "answers.jsonl", "jsonl",
        lambda: "".join(
            json.dumps(engines.vllm_answer(engines.vllm_stats(session, 4, detail))) + "\n"
            for session, detail in zip(ROUNDS, ("detailed", "by-length", "summary"), strict=True)
        ),
    ),
    "vLLM's answer": imported(
        "vllm", "answer.json", "json",
        lambda: json.dumps(engines.vllm_answer(engines.vllm_stats(ROUNDS[0], 4, "detailed")), indent=1),
    ),
    "SGLang's answers": imported(
        "sglang", "answers.jsonl", "jsonl",
        lambda: "".join(json.dumps(engines.sglang_answer(session, 4)) + "\n" for session in ROUNDS),
    ),
    "AIPerf's records": imported(
        "aiperf", "records.jsonl", "jsonl",
        lambda: "".join(json.dumps(engines.aiperf_line(session, 4)) + "\n" for session in ROUNDS),
    ),
    "vLLM's metrics": imported(
        "vllm-metrics", "metrics.txt", "bytes", lambda: engines.prometheus(dict(enumerate(ROUNDS)), 4)
    ),
    "llama.cpp's metrics": imported("llama-cpp-metrics", "llama.txt", "bytes", lambda: readings.LLAMA_CPP),
    "llama.cpp's answers": imported(
        "llama-cpp", "llama.jsonl", "jsonl", (CALIBRATE_DATA / "llama-cpp.jsonl").read_text
    ),
    "llama.cpp's log": imported("llama-cpp-log", "llama.log", "bytes", (CALIBRATE_DATA / "llama-cpp.log").read_text),
    "vLLM's log": imported(
        "vllm-log", "server.log", "bytes", lambda: "".join(engines.vllm_log(session, 4) for session in ROUNDS[:2])
    ),
    "vLLM's load": imported("vllm-metrics", "load.txt", "bytes", lambda: loads.metrics_text(loads.served(12))),
    "vLLM's log of a load": imported("vllm-log", "load.log", "bytes", lambda: loads.log_text([3, 4, 4])),
    "SGLang's log": imported("sglang-log", "sglang.log", "bytes", lambda: loads.sglang_log_text([3, 4, 4])),
    "vLLM's benchmark": imported("vllm-bench", "bench.json", "json", lambda: loads.bench_text(loads.served(12))),
    "SGLang's benchmark": imported(
        "sglang-bench", "sglang.jsonl", "json",
        lambda: loads.sglang_bench_text(loads.served(12), request_rate=2.5, max_concurrency=None),
    ),
    "SGLang's log of trees": imported("sglang-log", "t.log", "bytes", (CALIBRATE_DATA / "sglang-tree.log").read_text),
    "GuideLLM's report": imported("guidellm", "g.json", "json", (CALIBRATE_DATA / "guidellm.json").read_text),
    "inference-perf's requests": imported(
        "inference-perf", "p.json", "json", (CALIBRATE_DATA / "inference-perf.json").read_text, "--in-flight", "4"
    ),
    "inference-perf's stage": imported(
        "inference-perf", "s.json", "json", (CALIBRATE_DATA / "inference-perf-stage.json").read_text
    ),
    "AIPerf's load": imported(
        "aiperf", "load.jsonl", "jsonl", lambda: loads.aiperf_text(loads.served(12)), "--in-flight", "4"
    ),
}  # fmt: skip
