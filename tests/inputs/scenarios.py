"""Good scenarios, one a corner of what we read, with the profile and trace that they name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.inputs.values import toml_of

TIMES = {"base_s": 0.01, "per_token_s": 0.001}
PROFILE: dict[str, Any] = {
    "name": "small",
    "draft": {"base_s": 0.001, "per_token_s": 0.004, "per_context_token_s": 1e-7, "spread": "exponential"},
    "verify": {**TIMES, "spread": {"spread": "quantiles", "levels": [0.0, 0.5, 1.0], "ratios_at": [0.8, 1.0, 1.2]}},
    "decode": {"base_s": 0.02}, "draft_prefill": TIMES, "verify_prefill": TIMES, "realign": TIMES,
    "catch_up_s": 0.001,
    "overhead": {
        "own": {"drafter": {"queued": {"mean_s": 0.0001}, "woken": {"mean_s": 0.0001, "spread": "exponential"}}},
        "time_sliced": {"target": {"after": {"mean_s": 0.0001}}},
    },
    "link": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e9},
    "idle": {"gaps_s": [0.001, 0.03], "slowdowns": [1.0, 1.5], "recoveries": [1.0, 0.4]},
    "contention": [1.0, 1.4], "vocabulary": 32000, "hidden": 64, "version": 2,
    "power": {"idle_w": 50.0, "draft_w": 140.0, "verify_w": 230.0}, "provenance": {"processor": "none", "cores": "2"},
    "acceptance": {"model": "geometric", "beta": 0.7}, "sources": {"draft": "assumed"},
}  # fmt: skip
WORKLOAD = {"requests": 6, "prompt_tokens": 20, "new_tokens": 24}
SCENARIOS: dict[str, dict[str, Any]] = {
    "star": {
        "drafters": {
            "depth": 4, "warm_up": {"policy": "after-idle", "idle_gap_s": 0.01, "tokens": 2},
            "admit": {"policy": "at-most", "sessions": 3},
            "order": {"policy": "weighted", "weights": [1.0, 2.0], "limits_per_s": [0.0, 30.0]},
        },
        "verifiers": {"count": 3, "tiers": [{"first": 2, "step": {"base_s": 0.03}}]},
        "acceptance": {"model": "beta-geometric", "a": 3.0, "b": 1.5},
        "link": {"latency_s": "2ms", "bandwidth_bytes_per_s": "1Gbit"},
        "measure": {"warm_up_share": 0.1},
    },
    "batched": {
        "drafters": {"depth": 6, "group": {"policy": "batch", "most": 2}, "device": "gpu"},
        "verifiers": {"count": 2, "device": "gpu", "verify": {"base_s": 0.02}},
        "devices": {"gpu": {"sharing": "turns"}},
        "acceptance": {"model": "per-position", "survival": [round(0.95 - 0.03 * place, 2) for place in range(20)]},
    },
    "routed": {
        "drafters": {
            "count": 2, "route": "shortest-queue", "order": "priority",
            "tiers": [{"first": 2, "step": {"base_s": 0.02}, "link": {"latency_s": 0.01}}],
        },
        "verifiers": {"count": 4, "priorities": [1, 2]},
        "workload": {
            **WORKLOAD, "new_tokens": {"low": 10, "high": 30},
            "arrivals": {"process": "poisson", "per_s": 20.0},
        },
        "acceptance": {"model": "recorded", "depth": 5, "sessions": [[1, 5, 2], [0, 3, 4, 5]]},
    },
    "fair": {
        "drafters": {"count": 3}, "verifiers": {
            "count": 1, "late": "wait",
            "allocate": {"policy": "goodspeed", "budget": 9, "eta": 0.1, "beta": 0.5},
        },
        "acceptance": {
            "model": "ratios", "switch": 0.3, "clients": [[0.35, 0.45], [0.8]],
        },
        "workload": {**WORKLOAD, "temperature": 1.0, "top_k": 5, "top_p": 0.9},
    },
    "ahead": {
        "drafters": {"overlap": {"policy": "ahead", "least": 2, "busy": True}, "depth": 5},
        "acceptance": {"model": "agreement", "sessions": ["1101?1", "111"], "unknown": 0.5},
    },
    "aligned": {
        "drafters": {"place": "target"},
        "verifiers": {
            "max_num_seqs": 3, "aligned": {"policy": "same-length", "window": 6}, "allocate": {"policy": "dsde"},
        },
        "acceptance": {"model": "synthetic-signals", "acceptance": 0.8, "gap": 0.05},
    },
    "tree": {
        "drafters": {"shape": {"kind": "tree", "branching": [3, 2, 1]}, "depth": 3},
        "verifiers": {"rule": "without-replacement", "count": 2},
    },
}  # fmt: skip
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
    f"{place / 20},{10 + place},{12 + place % 5}\n" for place in range(8)
)


def scenario(name: str, **tables: Any) -> Callable[[Path], None]:
    """Return what writes a scenario, and the files that it names."""

    def write(folder: Path) -> None:
        content = {"name": name, "seed": 1, "profile": PROFILE, "workload": WORKLOAD} | SCENARIOS[name] | tables
        (folder / "scenario.toml").write_text(toml_of(content))
        (folder / "profile.json").write_text(json.dumps(PROFILE))
        (folder / "trace.csv").write_text(TRACE)

    return write
