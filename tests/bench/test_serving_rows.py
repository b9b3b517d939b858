"""Measured serving rows: how a file is read, what is left out, and what is fitted."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench import serving_rows
from bench.serving_rows import FILE, MeasuredRun, read_runs, reproduce
from specfleet.experiments.reproduce.rows import Reproduction
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.profile import placed_of

PLAIN = {
    "id": "plain", "silicon_data_source": "source_file=mine.csv; silicon_concurrency=4", "backend": "vllm",
    "backend_version": "0.12.0", "model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "precision": "", "mode": "agg",
    "isl": "64", "osl": "16", "gemm_quant_mode": "", "batch_size": "8.0", "tp_size": "2.0", "pp_size": "1.0",
    "attention_dp_size": "", "moe_tp_size": "1.0", "moe_ep_size": "1.0", "silicon_ttft_ms": "40",
    "silicon_tpot_ms": "16",
}  # fmt: skip
DUMP = {
    "silicon_data_source": "a dump; silicon_concurrency=2; measured=2025-10-29",
    "model_path": "meta-llama/Llama-3.1-70B",
}
ROWS = (
    PLAIN,
    PLAIN | {"id": "copied", "model_path": "zhipuai/GLM-5"},
    PLAIN | {"id": "doubted", "precision": "fp8", "silicon_ttft_ms": "41"},
    PLAIN | DUMP | {"id": "dumped", "precision": "fp8", "backend_version": "", "silicon_ttft_ms": "42"},
    PLAIN | {"id": "elsewhere", "system": "tpu"},
    PLAIN | {"id": "unknown", "model_path": "zhipuai/GLM-5", "silicon_ttft_ms": "43"},
    PLAIN | {"id": "copies", "attention_dp_size": "2.0", "silicon_ttft_ms": "44"},
    PLAIN | {"id": "servers", "silicon_ttft_ms": "45", "system": "gb200", "tp_size": "36.0"},
    PLAIN | {"id": "apart", "mode": "disagg", "isl": ""},
)


def write(folder: Path, *rows: dict[str, str]) -> Path:
    file = folder / FILE
    file.write_text("\n".join([",".join(PLAIN), *(",".join(row[name] for name in PLAIN) for row in rows)]))
    return file


def read(folder: Path, *rows: dict[str, str]) -> list[MeasuredRun]:
    return read_runs(write(folder, *rows))[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return reproduce(write(tmp_path_factory.mktemp("data"), *ROWS).parent)


def predicted(run: MeasuredRun, row_s: float) -> serving_rows.Predicted:
    """Predict a run of an engine with this host time of a row; nothing of it is kept."""

    def tried(*named: str) -> Placed:
        placed = placed_of(*named)
        return replace(placed, engine=replace(placed.engine, row_s=Figure(row_s, "assumed: tried")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving_rows, "placed_of", tried)
        patch.setattr(serving_rows, "_estimated", serving_rows._estimated.__wrapped__)
        return serving_rows._predicted.__wrapped__(run)


def test_each_run_has_two_rows_and_the_doubtful_do_not_count(made: Reproduction) -> None:
    kinds = {(row.case["row"], row.kind) for row in made.rows if "row" in row.case}
    assert kinds == {("plain", "estimated"), ("doubted", "unsettled"), ("dumped", "estimated")}
    assert made.score.rows == 4
    assert {row.case["requests"] for row in made.rows if "row" in row.case} == {40, 20}


def test_what_cannot_be_predicted_is_listed(made: Reproduction) -> None:
    left_out = [line for line in made.assumptions if "left out" in line]
    assert [line.partition("for want of: ")[2] for line in left_out] == [
        "attention in parallel copies, or pipelines", "device tpu", "model zhipuai/GLM-5",
        "prefill and decoding on the same devices (out of scope)",
        "which of more than 8 devices prefill and which decode",
    ]  # fmt: skip


def test_runs_whose_requests_wait_are_doubtful(tmp_path: Path) -> None:
    """15 tokens after the first take 240 ms: 4 requests that wait 239 ms decode 2 at once, and those of 241 do not."""
    decoding, waiting = read(tmp_path, PLAIN | {"silicon_ttft_ms": "239"}, PLAIN | {"silicon_ttft_ms": "241"})
    assert decoding.doubt == ""
    assert waiting.doubt == serving_rows.WAITING


def test_a_fall_of_tpot_makes_both_its_runs_doubtful(tmp_path: Path) -> None:
    loads = {"2": "14", "4": "20", "8": "18.9", "16": "19.5"}
    rows = [
        PLAIN | {"id": f"of {at}", "silicon_data_source": f"silicon_concurrency={at}", "silicon_tpot_ms": tpot}
        for at, tpot in loads.items()
    ]
    falling = [run.name for run in read(tmp_path, *rows) if run.doubt == serving_rows.FALLING]
    elsewhere = read(tmp_path, *rows[:2], rows[2] | {"isl": "65"})
    assert falling == ["of 4", "of 8"]
    assert not any(run.doubt for run in elsewhere)


def test_precisions_of_checkpoints() -> None:
    weights_of = serving_rows.weights_of
    assert weights_of("llama-3.1-70b", "fp4") == "nvfp4"
    assert weights_of("deepseek-r1", "fp4") == "bf16:mlp-nvfp4"
    assert weights_of("minimax-m2", "fp4") == "bf16:experts-nvfp4"
    assert weights_of("kimi-k2.5", "int4") == "bf16:experts-int4"
    assert weights_of("gpt-oss-120b", "fp4") == "bf16"
    assert weights_of("deepseek-r1", "fp8") == "fp8"


def test_devices_that_spread_experts_are_counted_once(tmp_path: Path) -> None:
    spread = {"tp_size": "64.0", "moe_tp_size": "8.0", "moe_ep_size": "8.0", "model_path": "deepseek-ai/DeepSeek-R1"}
    dumped, other = read(tmp_path, PLAIN | DUMP | spread, PLAIN | spread | {"silicon_ttft_ms": "41"})
    assert (dumped.devices, dumped.lacks) == (8, "")
    assert other.lacks


def test_sglang_reads_prompts_first_and_runs_on_h100_stay_in_step(tmp_path: Path) -> None:
    """Of 4 requests at once, all wait for all prompts, and then decode undisturbed."""
    row = PLAIN | {"isl": "8000", "osl": "40"}
    first, mixed = read(tmp_path, row | {"backend": "sglang"}, row)
    ours, theirs = serving_rows.predicted(first), predicted(mixed, 0.0)
    assert ours.ttft_ms > theirs.ttft_ms
    assert ours.tpot_ms < theirs.tpot_ms


def test_a_fitted_row_is_no_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(serving_rows.PAPER, "fitted", {"vllm": ("plain",)})
    rows = reproduce(write(tmp_path, PLAIN).parent).rows
    assert [row.kind for row in rows if "row" in row.case] == ["fitted", "fitted"]


def test_the_host_time_of_rows_makes_steps_longer(tmp_path: Path) -> None:
    (run,) = read(tmp_path, PLAIN)
    free, charged = predicted(run, 0.0), predicted(run, 1e-3)
    assert 3 < charged.tpot_ms - free.tpot_ms <= 4.1  # of 4 rows, each 1 ms


def test_figures_are_judged_on_the_half_that_they_were_not_fitted_on(tmp_path: Path) -> None:
    rows = [PLAIN | {"id": f"run {number}", "silicon_ttft_ms": str(40 + number)} for number in range(6)]
    made = reproduce(write(tmp_path, *rows).parent).rows
    halves = {
        row.case["rows"]: row.case["number"]
        for row in made
        if row.case.get("part") == "all" and row.quantity.startswith("TTFT") and "half" in row.case["rows"]
    }
    fitted = sum(serving_rows.fits(row["id"]) for row in rows)
    assert 0 < fitted < 6
    assert halves == {"half, on which figures were fitted": fitted, "other half": 6 - fitted}
