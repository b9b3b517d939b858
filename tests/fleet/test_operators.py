"""Tables of measured operators: passes are their sums, also at sizes between, and wrong tables are refused."""

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import specfleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware import tables
from specfleet.fleet.hardware.operators import attention_in, passes_of
from specfleet.fleet.hardware.passes import Placed, distinct_experts
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.times.mixed import Part, one_pass_s
from specfleet.fleet.times.roofline import Roofline

LAYER = {"qkv_proj": 60.0, "o_proj": 40.0, "gate_up_proj": 250.0, "down_proj": 130.0, "layernorm": 2.0, "act_fn": 3.0}
STEP = {"embedding": 3.0, "final_layernorm": 2.0}
HEAD = {"lm_head": 1000.0, "sampler": 25.0}
ROWS, CHUNK, BESIDE = 0.01, 0.002, 0.0004  # microseconds of attention


def attention_us(chunk: float, before: float, rows: float, context: float) -> float:
    """Return products of sizes, whose logarithms are straight lines; no 0 but that of `before` counts as half of 16."""
    if not rows:
        return CHUNK * chunk * (before or 8)
    return BESIDE * chunk * (before or 8) * rows * context if chunk else ROWS * rows * context


def write(folder: Path, experts: bool = False, parallel: int = 1) -> str:
    """Write tables in which an operator takes its time and a hundredth of that a token."""
    place = folder / f"tp{parallel}"
    place.mkdir()
    grown = [1, 2, 64, 100, 512, 2048]
    names = [name for name in LAYER | STEP if not experts or name not in ("gate_up_proj", "down_proj", "act_fn")]
    dense = [f"{name},{size},{(LAYER | STEP)[name] * (1 + size / 100)}" for name in names for size in grown]
    scored = [f"{name},{size},{time * (1 + size / 100)}" for name, time in HEAD.items() for size in (1, 100, 256)]
    attention = []
    sizes = (0, 16, 32, 64)
    for chunk, before, rows, context in product(sizes, sizes, sizes, sizes):
        if (chunk or not before) and (bool(context) == bool(rows)) and (chunk or rows):
            attention.append(f"{chunk},{before},{rows},{context},{attention_us(chunk, before, rows, context)}")
    tables = {
        "dense": ["layer,tokens,time_us", *dense],
        "per_sequence": ["layer,sequences,time_us", *scored],
        "attention": ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", *attention],
    }
    if experts:
        rows = [f"{size},{used},{50 + 6 * used}" for size in (1, 64, 2048) for used in (8, 128)]
        tables["moe"] = ["tokens,activated_experts,time_us", *rows]
    for name, lines in tables.items():
        (place / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return str(place)


def placed(operators: str, place: str = "llama-3.1-8b@rtx-4090") -> Placed:
    made = placed_of(place)
    return Placed(made.shape, made.device, made.engine, parallel=made.parallel, operators=operators)


def layers_s(every: Roofline, last: Roofline, parts: list[Part]) -> float:
    """Return what a step takes beyond its operators without attention."""
    return one_pass_s(every, last, parts) - one_pass_s(*(replace(law, measured=()) for law in (every, last)), parts)


def test_a_pass_is_the_sum_of_its_operators(tmp_path: Path) -> None:
    """The times of 32 rows lie between those of 2 and 64."""
    every, last = passes_of(placed(write(tmp_path)))
    rows, context = 32, 40
    layer = (sum(LAYER.values()) + LAYER["layernorm"]) * (1 + rows / 100)
    expected = 32 * (layer + ROWS * rows * context) + (sum(STEP.values()) + sum(HEAD.values())) * (1 + rows / 100)
    ours = one_pass_s(every, last, [Part(1, context, 1, False)] * rows)
    assert 1e6 * ours == pytest.approx(expected, rel=1e-6)
    assert every.mean_s(1, context, rows, rows - 1) == pytest.approx(ours)
    contexts = np.array([0.0, 40.0, 700.0])
    assert every.mean_s(1, contexts, 2, 1) == pytest.approx([every.mean_s(1, each, 2, 1) for each in contexts])


def test_the_largest_chunk_is_beside_the_decoding_rows(tmp_path: Path) -> None:
    every, last = passes_of(placed(write(tmp_path)))
    chunks = [Part(20, 0, 0, True), Part(50, 30, 1, True)]
    rows = [Part(1, 20, 1, False), Part(1, 60, 1, False)] * 12
    expected = attention_us(50, 30, 24, 40) + attention_us(20, 0, 0, 0)
    assert 1e6 * layers_s(every, last, chunks + rows) == pytest.approx(32 * expected, rel=1e-6)
    alone = attention_us(50, 30, 0, 0) + attention_us(20, 0, 0, 0)
    assert 1e6 * layers_s(every, last, chunks) == pytest.approx(32 * alone, rel=1e-6)
    assert last.slowed(2).mean_s(50, 30) == pytest.approx(2 * last.mean_s(50, 30))


def test_sizes_of_a_finer_grid_are_left_out(tmp_path: Path) -> None:
    file = Path(write(tmp_path)) / "attention.csv"
    before = attention_in(file, 1)
    file.write_text(file.read_text() + "0,0,16,24,9.0\n")
    assert attention_in(file, 1) == before
    file.write_text(file.read_text() + "0,0,16,128,9.0\n")
    with pytest.raises(InputError, match="all combinations"):
        attention_in(file, 1)


def test_experts_take_the_time_of_those_that_are_distinct(tmp_path: Path) -> None:
    every, _ = passes_of(placed(write(tmp_path, experts=True), "qwen3-30b-a3b@h100"))
    names = ("qkv_proj", "o_proj", "layernorm", "layernorm")
    rest = 48 * (1.64 * sum(LAYER[name] for name in names))
    rest += 1.64 * (sum(STEP.values()) + sum(HEAD.values()))
    experts = (1e6 * every.products_s(64) - rest) / 48
    assert experts == pytest.approx(50 + 6 * distinct_experts(128, 8, 64), rel=1e-6)


def test_an_estimate_says_that_its_operators_are_measured(tmp_path: Path) -> None:
    folder = write(tmp_path)
    profile = specfleet.estimate("llama-3.1-8b@rtx-4090", operators=folder)
    assert profile.sources["verify"].startswith(f"estimated: measured operators in {folder}")


def test_measured_all_reduces_follow_attention_and_mlp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the operators' vLLM count, by numbers; without the package they are estimated, and a label says so."""
    place = "llama-3.1-8b@2xrtx-pro-6000"
    folder = write(tmp_path, parallel=2)
    (tmp_path / "meta.yaml").write_text("vllm_version: 0.19.0\n")
    monkeypatch.setattr(tables, "tables_at", lambda: None)
    assert specfleet.estimate(place, operators=folder).sources["verify"].endswith("all-reduces estimated, one pass")
    monkeypatch.setattr(tables, "tables_at", lambda: tmp_path)
    for number, version in enumerate(("0.19.0", "0.24.0"), 1):
        write_reduces(tmp_path / "rtx_pro_6000_server" / "comm" / "vllm" / version, number)
    _, last = passes_of(placed(folder, place))
    operators = 32 * (sum(LAYER.values()) + LAYER["layernorm"]) + sum(STEP.values())
    reduced = 2 * 32 * 64 * 4096 / 1000 + 128256 / 2 / 1000  # 1 us for 1,000; logits are gathered, too
    expected = operators * (1 + 64 / 100) + sum(HEAD.values()) * 1.01 + reduced
    assert 1e6 * last.products_s(64) == pytest.approx(expected, rel=1e-6)
    assert "vllm 0.19.0" in specfleet.estimate(place, operators=folder).sources["verify"]


def write_reduces(folder: Path, us_for_1000: float) -> None:
    """Write all-reduces in proportion to numbers, those outside of graphs and of more devices three times as long."""
    rows = [
        {"num_gpus": count, "message_size": size, "kernel_source": f"vLLM_{where}", "allreduce_dtype": "bfloat16",
         "latency": (1 if (count, where) == (2, "graph") else 3) * us_for_1000 * size / 1e6}
        for size in (1 << 28, 128) for count in (2, 4) for where in ("eager", "graph")
    ]  # fmt: skip
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=tables.REDUCED_SCHEMA), folder / tables.REDUCED)


def test_tables_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for place, problem in (("qwen3-32b@2xh100", "needs the folder tp2"), ("gpt-oss-120b@h100", "full attention")):
        with pytest.raises(InputError, match=problem):
            specfleet.estimate(place, operators=folder)
    (tmp_path / "tp1" / "attention.csv").write_text("prefill_chunk,time_us\n1,x\n")
    with pytest.raises(InputError, match=r"attention.csv: needs rows with numbers"):
        specfleet.estimate("llama-3.1-8b@rtx-4090", operators=folder)
    (tmp_path / "tp1" / "dense.csv").write_text("layer,tokens,time_us\nqkv_proj,1,2\n")
    with pytest.raises(InputError, match="has no down_proj, gate_up_proj, o_proj"):
        specfleet.estimate("llama-3.1-8b@rtx-4090", operators=folder)
