"""The kinds of files that we read: a good one of each, and the commands that read it."""

import json
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from calibrate import operators
from experiments.reproduce.specdecode_data import FILE, SETS
from fleet.estimate.shipped import shipped_devices
from fleet.records.run import write_run
from fleet.scenario.reading import make_scenario
from fleet.times.profile import write_profile
from sim.run import simulate
from tests.helpers import engines
from tests.helpers.ends import write_ends
from tests.inputs.values import toml_of

SIMULATE = ("simulate", "scenario.toml", "--json", "-o", "out.parquet")
TIMES = {"base_s": 0.01, "per_token_s": 0.001}
PROFILE: dict[str, Any] = {
    "name": "small",
    "draft": {"base_s": 0.001, "per_token_s": 0.004, "per_context_token_s": 1e-7, "spread": "exponential"},
    "verify": {**TIMES, "spread": {"spread": "quantiles", "levels": [0.0, 0.5, 1.0], "ratios_at": [0.8, 1.0, 1.2]}},
    "decode": {"base_s": 0.02}, "draft_prefill": TIMES, "verify_prefill": TIMES, "transfer": TIMES, "realign": TIMES,
    "catch_up_s": 0.001, "turnaround_s": 0.0001, "turnaround_row_s": 0.00001, "wake_up_s": 0.0001,
    "link": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e9},
    "idle": {"gaps_s": [0.001, 0.03], "slowdowns": [1.0, 1.5], "recoveries": [1.0, 0.4]},
    "recent_load": {"half_life_s": 0.1, "loads": [0.0, 1.0], "slowdowns": [1.3, 1.0], "paces": [1.1, 1.0]},
    "turns": [{"slowdowns": {"draft": 1.1}, "handover_s": 0.0001}], "one_process": {"handover_s": 0.0001},
    "contention": [1.0, 1.4], "vocabulary": 32000, "hidden": 64, "control_s": 0.0001,
    "power": {"idle_w": 50.0, "draft_w": 140.0, "verify_w": 230.0}, "provenance": {"processor": "none", "cores": "2"},
    "acceptance": {"model": "geometric", "beta": 0.7}, "sources": {"draft": "assumed"},
}  # fmt: skip
WORKLOAD = {"requests": 6, "prompt_tokens": 20, "new_tokens": 24}
SCENARIOS: dict[str, dict[str, Any]] = {
    "star": {
        "drafters": {
            "depth": 4, "warm_up": {"policy": "after-idle", "idle_gap_s": 0.01, "tokens": 2},
            "admit": {"policy": "at-most", "sessions": 3}, "cache_tokens": 200,
            "limits_per_s": [0.0, 30.0], "order": {"policy": "weighted", "weights": [1.0, 2.0]},
        },
        "verifiers": {"count": 3, "priorities": [1, 2], "tiers": [{"first": 2, "verify": {"base_s": 0.03}}]},
        "acceptance": {"model": "beta-geometric", "a": 3.0, "b": 1.5, "per": "session"},
        "link": {"latency_s": "2ms", "bandwidth_bytes_per_s": "1Gbit"},
        "measure": {"warm_up_share": 0.1, "batches": 5, "deadlines_s": [0.05]},
        "memory": {
            "devices": 4, "device_bytes": 80_000_000_000,
            "target": {"weights_bytes": 16_000_000_000, "kv_bytes_per_token": 131072},
            "drafter": {"weights_bytes": 2_000_000_000, "kv_bytes_per_token": 32768},
        },
    },
    "adaptive": {
        "drafters": {"depth": 6, "allocate": "adaptive", "group": {"policy": "batch", "most": 2}, "device": "gpu"},
        "verifiers": {"count": 2, "device": "gpu", "verify": {"base_s": 0.02}},
        "devices": {"gpu": {"sharing": "turns"}},
        "acceptance": {"model": "per-position", "rates": [round(0.95 - 0.03 * place, 2) for place in range(20)]},
    },
    "routed": {
        "drafters": {
            "count": 2, "route": {"policy": "least-work", "move_s": 0.01}, "move": "transfer", "view_delay_s": 0.001,
            "tiers": [{"first": 2, "draft": {"base_s": 0.02}, "link": {"latency_s": 0.01}}],
        },
        "verifiers": {"count": 4},
        "workload": {
            **WORKLOAD, "new_tokens": {"low": 10, "high": 30},
            "arrivals": {"process": "poisson", "per_s": 20.0},
        },
        "acceptance": {"model": "recorded", "depth": 5, "sessions": [[1, 5, 2], [0, 3, 4, 5]]},
    },
    "fair": {
        "drafters": {"count": 3}, "verifiers": {
            "count": 1, "group": "barrier", "padded": True,
            "allocate": {"policy": "goodspeed", "budget": 9, "eta": 0.1, "beta": 0.5},
        },
        "acceptance": {
            "model": "ratios", "switch": 0.3, "clients": [[{"mean": 0.35}, {"mean": 0.45}], [{"mean": 0.8}]],
        },
        "workload": {**WORKLOAD, "temperature": 1.0, "top_k": 5, "top_p": 0.9},
    },
    "ahead": {
        "drafters": {"overlap": {"policy": "ahead", "least": 2, "busy": True}, "depth": 5},
        "acceptance": {"model": "agreement", "sessions": ["1101?1", "111"], "unknown": 0.5},
    },
    "batch": {
        "batch": {
            "rule": {"policy": "same-length", "size": 3, "window": 6}, "allocate": {"policy": "dsde"}, "padded": True,
        },
        "acceptance": {"model": "synthetic-signals", "acceptance": 0.8, "gap": 0.05},
    },
    "tree": {
        "drafters": {"shape": {"kind": "tree", "branching": [3, 2, 1]}, "depth": 3},
        "verifiers": {"rule": "without-replacement", "count": 2},
        "workload": {"requests": 6, "new_tokens": 24, "conversations": "conversations.jsonl"},
    },
}  # fmt: skip
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
    f"{place / 20},{10 + place},{12 + place % 5}\n" for place in range(8)
)
TURNS = "".join(json.dumps({"question_id": n, "turns": [f"question {n} " * 4, "and then?"]}) + "\n" for n in range(4))


class Kind(NamedTuple):
    """A kind of files: how good ones are written into a folder, which are damaged, their form, and who reads them.

    `stand_ins`: what takes the place of something slow while they are read, by its dotted name; see `standing_in`.
    """

    write: Callable[[Path], None]
    files: tuple[str, ...]
    form: str
    commands: tuple[tuple[str, ...], ...]
    statuses: tuple[int, ...] = (0,)
    stand_ins: Mapping[str, Any] = {}


@contextmanager
def standing_in(kind: Kind) -> Iterator[None]:
    """Put a kind's stand-ins into their places, and back what was there before."""
    with ExitStack() as places:
        for name, stand_in in kind.stand_ins.items():
            places.enter_context(mock.patch(name, stand_in))
        yield


def scenario(name: str, **tables: Any) -> Callable[[Path], None]:
    """Return what writes a scenario, and the files that it names."""

    def write(folder: Path) -> None:
        content = {"name": name, "seed": 1, "profile": PROFILE, "workload": WORKLOAD} | SCENARIOS[name] | tables
        (folder / "scenario.toml").write_text(toml_of(content))
        (folder / "profile.json").write_text(json.dumps(PROFILE))
        (folder / "trace.csv").write_text(TRACE)
        (folder / "conversations.jsonl").write_text(TURNS)

    return write


def write_run_files(folder: Path) -> None:
    """Write a scenario and a run of it."""
    scenario("star")(folder)
    content = tomllib.loads((folder / "scenario.toml").read_text())
    write_run(simulate(make_scenario(content)), folder / "run.parquet")
    write_run(simulate(make_scenario(content)), folder / "other.parquet")


def write_signal_files(folder: Path) -> None:
    """Write a scenario, and the signals that it plays."""
    from fleet.chance.signals import write_signals
    from fleet.chance.token import Token

    scenario("batch", acceptance={"model": "signals", "file": "signals.parquet"})(folder)
    rng = random.Random(1)
    sessions = [[Token(rng.random(), rng.random(), rng.random()) for _ in range(30)] for _ in range(3)]
    write_signals(sessions, folder / "signals.parquet")


def write_place_files(folder: Path) -> None:
    """Write a scenario, the places that it plays and the lengths of its requests."""
    from fleet.chance.places import write_places

    acceptance = {"model": "by-place", "file": "places.parquet", "depth": 5}
    workload = {"requests": 6, "lengths": "lengths.csv"}
    scenario("star", acceptance=acceptance, workload=workload)(folder)
    rng = random.Random(1)
    write_places([[rng.randrange(6) for _ in range(20)] for _ in range(4)], folder / "places.parquet")
    rows = "".join(f"{20 + request},{12 + 3 * request}\n" for request in range(6))
    (folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + rows)


def write_ended(folder: Path) -> None:
    """Write a scenario, and the run that tells where its texts end."""
    scenario("star", workload={**WORKLOAD, "ignore_eos": False, "ends": "ends.parquet"})(folder)
    write_ends(folder / "ends.parquet", {0: 5, 1: 20, 4: 9})


def write_sweep(folder: Path) -> None:
    """Write a scenario and the folder of a sweep."""
    from specfleet import sweep

    scenario("ahead")(folder)
    sweep(folder / "scenario.toml", {"verifiers.count": [1, 2]}, out=folder / "swept", seeds=1, jobs=1)
    (cell,) = (folder / "swept" / "cells").glob("*1.json")
    assert cell.name == "verifiers.count=1.json"


def write_reproduction(folder: Path) -> None:
    """Write a reproduction as --json prints it."""
    from specfleet import reproduce

    (folder / "rows.json").write_bytes(msgspec.json.encode(reproduce("batch-table2")))


def write_calibrated(folder: Path) -> None:
    """Write a profile with what calibration measured, as the figures draw it."""
    spread = {"mean_s": 0.01, "p10_s": 0.009, "p90_s": 0.012}
    grid = [
        {"tokens": n, "quantiles_s": [0.009 * n, 0.01 * n, 0.012 * n], "fitted_s": 0.011 * n, "held_out": n == 2}
        for n in (1, 2, 3)
    ]
    idle = [{"gap_s": gap_s, **spread} for gap_s in (0.001, 0.01)]
    warm_up = [{"warm_tokens": tokens, **spread} for tokens in (0, 1)]
    content = PROFILE | {"measured": {"draft": grid, "verify": grid, "idle": idle, "warm_up": warm_up}}
    (folder / "profile.json").write_text(json.dumps(content))


def write_estimate(folder: Path) -> None:
    """Write what an estimate reads: a config.json, a device, and Vidur's operators of one."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100}
    config = {"model_type": "qwen3_moe", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, **sizes}
    config |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "device.toml").write_text(shipped_devices()["h100"].read_text())
    head = [*operators.COLUMNS, *(f"time_stats.{name}.median" for name in (*operators.PRODUCTS, *operators.KERNELS))]
    rows = [[tokens, 1, 4096, 11008, 32, 32] + [0.1] * 9 for tokens in (1, 64, 1024)]
    lines = [",".join(map(str, row)) for row in [head, *rows]]
    (folder / "vidur-h100-llama2-7b-mlp.csv").write_text("\n".join(lines) + "\n")


def write_acceptance(folder: Path) -> None:
    """Write recordings of all sets that the reproductions of SpecDecode-Bench read."""
    rows = [
        (name, str(n), 20 + n, 9, [1, 3, 1, 2, 21], [1, 1, 2, 1, 5, 1, 1, 4, 1])
        for name in SETS.values()
        for n in (0, 1)
    ]
    engines.write_specdecode_bench(folder / FILE, rows)


def write_estimated(folder: Path) -> None:
    """Write a scenario with an estimated profile."""
    from specfleet import estimate

    scenario("star", profile="estimated.json")(folder)
    write_profile(estimate("llama-3.1-8b@h100", "eagle3-llama-3.1-8b@h100"), folder / "estimated.json")


def write_amusd(folder: Path) -> None:
    """Write a run file of the AMUSD authors' form."""
    accepted = [6, 3, 6, 1, 6, 2] * 3
    look = [{"timestamp": 0.05 * n, "gpu_powers": [200.0, 90.0]} for n in range(1, 20)]
    runs = {
        "greedy": {"token_times": [0.04] + [0.02] * 59, "total_time": 1.3},
        "sd": {
            "draft_times": [0.1] + [0.01] * 95, "verify_times": [0.05] + [0.03] * 17, "accepted_tokens": accepted,
            "total_time": 1.8,
        },
        "amusd": {
            "draft_times": [0.02] + [0.01] * 99, "verify_times": [0.5] + [0.03] * 39, "accepted_tokens": [3, 1] * 20,
            "total_time": 1.5,
        },
    }  # fmt: skip
    entries = [
        {"sample_index": 0, "strategy": name, "metrics": {"tokens_generated": 60, "gpustats": look, **metrics}}
        for name, metrics in runs.items()
    ]
    (folder / "runs.json").write_text(json.dumps(entries))


def imported(kind: str, file: str, form: str, content: Callable[[], str]) -> Kind:
    """Return the kind of another engine's records, which `import` reads."""
    command = ("import", kind, file, "-o", "made.toml", "--json", "--draft-ms", "2", "--verify-ms", "25")
    return Kind(lambda folder: write_text(folder / file, content()), (file,), form, (command,))


def write_recordings(folder: Path) -> None:
    """Write recordings of SpecDecode-Bench as one table."""
    rows = [("a", str(number), 9, 5, [1, 3, 1, 21, 1], [1] * 5) for number in range(4)]
    engines.write_specdecode_bench(folder / "all.parquet", rows)


def write_text(path: Path, text: str) -> None:
    """Write a file."""
    path.write_text(text)


ROUNDS = [[(4, 4), (4, 1), (4, 0), (4, 1)], [(4, 2), (4, 3)], [(4, 0)]]  # of three requests: drafted, accepted
TEXTS = [[3, 0, 1, 20, 2, 0, 0], [0, 0, 5, 4, 1]]
OF_ENGINES: dict[str, Kind] = {
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
    "vLLM's log": imported(
        "vllm-log", "server.log", "bytes", lambda: "".join(engines.vllm_log(session, 4) for session in ROUNDS[:2])
    ),
    "inference-lab's trace": imported(
        "inference-lab", "rounds.csv", "csv", lambda: engines.inference_lab(ROUNDS[0] + ROUNDS[1], 4, oracle=False)
    ),
    "SpecDecode-Bench's answers": imported(
        "specdecode-bench", "answers.jsonl", "jsonl", lambda: engines.specdecode_bench(TEXTS)
    ),
    "SpecDecode-Bench's table": Kind(
        write_recordings, ("all.parquet",), "parquet",
        (("import", "specdecode-bench", "all.parquet", "-o", "made.toml", "--json"),),
    ),
}  # fmt: skip


KINDS: dict[str, Kind] = {
    **OF_ENGINES,
    **{
        f"scenario ({name})": Kind(
            scenario(name), ("scenario.toml",), "toml", (SIMULATE, SIMULATE, ("show", "scenario.toml", "--json"))
        )
        for name in SCENARIOS
    },
    "scenario for equations": Kind(
        scenario("adaptive", drafters={"depth": 4}, devices={}, verifiers={"count": 2}), ("scenario.toml",), "toml",
        (("analytic", "scenario.toml", "--json"),),
    ),
    "profile": Kind(scenario("star", profile="profile.json"), ("profile.json",), "json", (SIMULATE,)),
    "calibrated profile": Kind(
        write_calibrated, ("profile.json",), "json",
        (
            ("figure", "residuals", "profile.json", "-o", "x.png"),
            ("figure", "draft-time", "profile.json", "-o", "x.png"),
        ),
    ),
    "estimate": Kind(
        write_estimate, ("config.json",), "json", (("profile", "estimate", "--target", "config.json@h100", "--json"),)
    ),
    "device": Kind(
        write_estimate, ("device.toml",), "toml",
        (("profile", "estimate", "--target", "llama-3.1-8b@device.toml", "--json"),),
    ),
    "operators": Kind(
        write_estimate, ("vidur-h100-llama2-7b-mlp.csv",), "csv", (("reproduce", "estimates", "--data", ".", "--json"),)
    ),
    "acceptance of all sets": Kind(
        write_acceptance, (FILE,), "parquet", (("reproduce", "specdecode-fig10", "--data", ".", "--json"),)
    ),
    "estimated profile": Kind(write_estimated, ("estimated.json",), "json", (SIMULATE,)),
    "run": Kind(
        write_run_files, ("run.parquet",), "parquet",
        (
            ("compare", "run.parquet", "other.parquet", "--json"),
            ("simulate", "scenario.toml", "--pace", "run.parquet", "--json"),
            ("figure", "timeline", "run.parquet", "-o", "x.png"),
        ),
    ),
    "signals": Kind(write_signal_files, ("signals.parquet",), "parquet", (SIMULATE,)),
    "places": Kind(write_place_files, ("places.parquet",), "parquet", (SIMULATE,)),
    "lengths": Kind(write_place_files, ("lengths.csv",), "csv", (SIMULATE,)),
    "scenario (by place)": Kind(write_place_files, ("scenario.toml",), "toml", (SIMULATE,)),
    "ends of texts": Kind(write_ended, ("ends.parquet",), "parquet", (SIMULATE,)),
    "trace": Kind(
        scenario("routed", workload={"requests": 6, "arrivals": {"process": "trace", "file": "trace.csv"}}),
        ("trace.csv",), "csv", (SIMULATE,),
    ),
    "conversations": Kind(scenario("tree"), ("conversations.jsonl",), "jsonl", (SIMULATE,)),
    "cell of a sweep": Kind(
        write_sweep, ("swept/cells/verifiers.count=1.json",), "json",
        (("sweep", "scenario.toml", "-o", "swept", "--vary", "verifiers.count=1,2", "--seeds", "1", "--jobs", "1"),),
    ),
    "table of a sweep": Kind(
        write_sweep, ("swept/sweep.csv",), "csv", (("figure", "throughput", "swept", "-o", "x.png"),)
    ),
    "reproduction": Kind(
        write_reproduction, ("rows.json",), "json", (("figure", "reproduction", "rows.json", "-o", "x.png"),)
    ),
    "values of --set": Kind(
        scenario("star"), (), "command line", (("simulate", "scenario.toml", "--json", "--set", "KEY=VALUE"),)
    ),
    "values of --vary": Kind(
        scenario("ahead"), (), "command line",
        (("sweep", "scenario.toml", "-o", "swept", "--seeds", "1", "--jobs", "1", "--vary", "KEY=VALUES"),), (0, 1),
    ),
    "other options": Kind(
        write_run_files, (), "command line",
        (
            ("compare", "run.parquet", "other.parquet", "--json", "--tolerance", "VALUE"),
            ("sweep", "scenario.toml", "-o", "swept", "--vary", "verifiers.count=1", "--jobs", "1", "--seeds", "VALUE"),
            ("figure", "VALUE", "run.parquet", "-o", "x.png"),
            ("figure", "timeline", "VALUE", "-o", "x.png"),
            ("show", "VALUE", "--json"),
            ("simulate", "scenario.toml", "--pace", "VALUE", "--json"),
            ("reproduce", "VALUE", "--json"),
            ("reproduce", "amusd-a100", "--trace", "VALUE"),
            ("reproduce", "estimates", "--data", "VALUE", "--json"),
            ("reproduce", "specdecode-fig1", "--data", "VALUE", "--json"),
            ("profile", "estimate", "--target", "VALUE", "--json"),
            ("profile", "estimate", "--target", "llama-3.1-8b@h100", "--draft", "VALUE", "--json"),
            ("profile", "estimate", "--model", "llama-3.1-8b", "--device", "VALUE", "--json"),
            ("profile", "estimate", "--target", "llama-3.1-8b@h100", "--precision", "VALUE", "--json"),
            ("profile", "estimate", "--target", "llama-3.1-8b@h100", "--tensor-parallel", "VALUE", "--json"),
            ("profile", "estimate", "--target", "llama-3.1-8b@h100", "--engine", "VALUE", "--json"),
            ("reproduce", "starsd-fig6", "--profile", "VALUE", "--json"),
            ("explain", "VALUE"),
            ("export", "VALUE", "--json"),
            ("import", "VALUE", "run.parquet", "-o", "made.toml", "--json"),
            ("import", "vllm", "VALUE", "-o", "made.toml", "--json"),
            ("import", "vllm-log", "nowhere", "-o", "made.toml", "--draft-ms", "VALUE", "--verify-ms", "VALUE"),
            ("init", "VALUE"),
        ),
        (0, 1),
    ),
    "AMUSD run": Kind(
        write_amusd, ("runs.json",), "json",
        (
            ("reproduce", "amusd-a100", "--trace", "runs.json", "--json"),
            ("import", "amusd", "runs.json", "-o", "made.toml", "--json"),
        ),
        stand_ins={"experiments.reproduce.amusd.SEEDS": 2},
    ),
}  # fmt: skip
