"""Records of other engines, made of known rounds."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Session = Sequence[tuple[int, int]]  # the rounds of a request: drafted, accepted


def histogram_of(session: Session, depth: int) -> list[int]:
    """The number of rounds that accepted 0, 1, ... depth draft tokens."""
    counts = Counter(accepted for _, accepted in session)
    return [counts[j] for j in range(depth + 1)]


def vllm_stats(session: Session, depth: int, detail: str = "summary", digits: int = 4) -> dict[str, Any]:
    """`metrics.speculative_decoding` of a request; `detail`: summary, by-length or detailed."""
    drafted, accepted = (sum(part) for part in zip(*session, strict=True))
    stats: dict[str, Any] = {
        "mean_acceptance_length": round(1 + accepted / len(session), digits),
        "draft_acceptance_rate": round(accepted / drafted, digits) if drafted else 0.0,
        "acceptance_histogram": histogram_of(session, depth),
        "num_spec_steps": len(session),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": depth,
    }
    if detail == "by-length":
        stats["acceptance_histogram_by_draft_length"] = {
            str(length): histogram_of([pair for pair in session if pair[0] == length], length)
            for length in sorted({length for length, _ in session})
        }
    if detail == "detailed":
        stats["per_step_accepted"] = [accepted for _, accepted in session]
        stats["per_step_drafted"] = [drafted for drafted, _ in session]
    return stats


def vllm_answer(stats: dict[str, Any]) -> dict[str, Any]:
    """A response of vLLM's OpenAI API, as far as it matters here."""
    answer = stats["num_spec_steps"] + stats["num_accepted_draft_tokens"] + 1
    usage = {"prompt_tokens": 20, "completion_tokens": answer, "total_tokens": 20 + answer}
    return {"id": "x", "usage": usage, "metrics": {"speculative_decoding": stats}}


def aiperf_line(session: Session, depth: int) -> dict[str, Any]:
    """A line of AIPerf's profile_export.jsonl."""
    stats = vllm_stats(session, depth)
    stats["acceptance_histogram"] = {str(j): n for j, n in enumerate(stats["acceptance_histogram"]) if n}
    answer = stats["num_spec_steps"] + stats["num_accepted_draft_tokens"] + 1
    rest = {"completion_tokens": answer, "per_step_accepted": None, "per_step_drafted": None}
    record = {"engine": "vllm", **stats, **rest}
    lengths = {"input_sequence_length": {"value": 20, "unit": "tokens"}, "output_sequence_length": {"value": 30}}
    return {"metadata": {"session_num": 0}, "metrics": lengths, "spec_decode_acceptance": record}


def sglang_answer(session: Session, depth: int, older: bool = False) -> dict[str, Any]:
    """A response of SGLang's /generate."""
    drafted, accepted = (sum(part) for part in zip(*session, strict=True))
    completion = accepted + len(session)
    meta = {
        "prompt_tokens": 20,
        "completion_tokens": completion,
        "spec_accept_rate": round(accepted / drafted, 4),
        "spec_accept_length": round(completion / len(session), 4),
        "spec_accept_token_num" if older else "spec_num_correct_drafts": accepted,
        "spec_draft_token_num" if older else "spec_num_proposed_drafts": drafted,
        "spec_verify_ct": len(session),
        "spec_accept_histogram" if older else "spec_correct_drafts_histogram": histogram_of(session, depth),
    }
    return {"text": "", "meta_info": meta}


def survivors(histogram: Sequence[int]) -> list[int]:
    """The number of rounds that accepted at least 1, 2, ... draft tokens."""
    return [sum(histogram[j:]) for j in range(1, len(histogram))]


def prometheus(engines: Mapping[int, Session], depth: int) -> str:
    """A scrape of vLLM's /metrics with counters of some engines."""
    lines = [
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.",
        "vllm:num_requests_running 3.0",
    ]
    for engine, session in engines.items():
        labels = f'engine="{engine}",model_name="m"'
        drafted, accepted = (sum(part) for part in zip(*session, strict=True))
        for name, value in (("drafts", len(session)), ("draft_tokens", drafted), ("accepted_tokens", accepted)):
            lines.append(f"vllm:spec_decode_num_{name}_total{{{labels}}} {float(value)}")
            lines.append(f"vllm:spec_decode_num_{name}_created{{{labels}}} 1.7637e+09")
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}'
            for place, count in enumerate(survivors(histogram_of(session, depth)))
        ]
    return "\n".join(lines) + "\n"


def vllm_log(session: Session, depth: int) -> str:
    """A line of vLLM's log over an interval."""
    drafted, accepted = (sum(part) for part in zip(*session, strict=True))
    rates = ", ".join(f"{count / len(session):.3f}" for count in survivors(histogram_of(session, depth)))
    return (
        f"(APIServer pid=1) INFO 11-22 08:00:00 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: "
        f"{1 + accepted / len(session):.2f}, Accepted throughput: 1.00 tokens/s, Drafted throughput: 2.00 tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%\n"
    )


def write_lines(path: Path, entries: Sequence[Any]) -> Path:
    """Write JSON Lines."""
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path
