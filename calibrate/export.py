"""export: the settings by which other engines force a scenario's acceptance, so that both run at the same one."""

import json
from typing import Any

from specfleet.fleet.acceptance.models import expected_committed
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.changes import Changes
from specfleet.fleet.scenario.reading import Given, scenario_of
from specfleet.fleet.scenario.resolve import resolve

DIGITS = 4  # of the mean length


def export(scenario: Given, changes: Changes | None = None, **keys: Any) -> dict[str, str]:
    """Return the line, by engine, that forces the scenario's mean acceptance length there, for benchmarks.

    `scenario`, `changes` and keywords as in `simulate`. Engines: vllm, sglang, tensorrt-llm, llama-cpp, atom.
    Raises InputError where drafts have no fixed depth, or acceptance is known of single tokens only.

    >>> import specfleet
    >>> specfleet.export("star", {"drafters.depth": 3}, acceptance={"model": "geometric", "beta": 0.5})["atom"]
    '--spec-decode-acceptance-length 1.875'
    """
    fleet = resolve(scenario_of(scenario, changes, **keys))
    depth = fleet.drafters.depth
    if fleet.drafters.count == 0 or fleet.room.longest_draft != depth or fleet.drafters.shape.kind != "chain":
        raise InputError(
            f"scenario {fleet.name!r}: engines force one mean length of chains at one depth; leave length rules, "
            "shapes and drafting ahead out"
        )
    mean = round(expected_committed(fleet.length_model(), depth), DIGITS)
    config = {
        "num_speculative_tokens": depth,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": mean,
    }
    sglang = f"SGLANG_SIMULATE_ACC_LEN={mean:g} SGLANG_SIMULATE_ACC_METHOD=match-expected"
    return {
        "vllm": f"--speculative-config '{json.dumps(config)}'",
        "sglang": f"{sglang} SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token",
        "tensorrt-llm": f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={round(mean - 1, DIGITS):g}",
        "llama-cpp": f"--spec-draft-n-max {depth} --spec-synth-len {mean:g}",
        "atom": f"--spec-decode-acceptance-length {mean:g}",
    }
