"""Tables of measured operators: passes are their sums, also at sizes between, and wrong tables are refused."""

from pathlib import Path

import pytest

import specfleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.operators import attention_of, passes_of
from specfleet.fleet.hardware.passes import Placed, distinct_experts
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.times.mixed import Part, one_pass_s

LAYER = {"qkv_proj": 60.0, "o_proj": 40.0, "gate_up_proj": 250.0, "down_proj": 130.0, "layernorm": 2.0, "act_fn": 3.0}
STEP = {"embedding": 3.0, "final_layernorm": 2.0}
HEAD = {"lm_head": 1000.0, "sampler": 25.0}
LAUNCH, ROW, READ, PAIR = 10.0, 0.2, 0.004, 0.0002  # microseconds


def write(folder: Path, experts: bool = False, parallel: int = 1) -> str:
    """Write tables in which an operator takes its time and a hundredth of that a token."""
    place = folder / f"tp{parallel}"
    place.mkdir()
    grown = [1, 2, 64, 100, 512, 2048]
    names = [name for name in LAYER | STEP if not experts or name not in ("gate_up_proj", "down_proj", "act_fn")]
    dense = [f"{name},{size},{(LAYER | STEP)[name] * (1 + size / 100)}" for name in names for size in grown]
    scored = [f"{name},{size},{time * (1 + size / 100)}" for name, time in HEAD.items() for size in (1, 100, 256)]
    attention = []
    for chunk, before, rows, context in (
        *((0, 0, rows, kv) for rows in (1, 8, 64) for kv in (16, 512, 4096)),
        *((chunk, kv, 0, 0) for chunk in (16, 512, 2048) for kv in (0, 512, 4096)), (512, 0, 64, 512),
    ):  # fmt: skip
        pairs = chunk * (before + (chunk + 1) / 2) + rows * (context + 1)
        read = rows * (context + 1) + before + chunk
        slow = 3 if chunk and rows else 1  # mixed steps are left out of the fit
        attention.append(
            f"{chunk},{before},{rows},{context},{slow * (LAUNCH + ROW * rows + READ * read + PAIR * pairs)}"
        )
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


def test_a_pass_is_the_sum_of_its_operators(tmp_path: Path) -> None:
    """The times of 32 rows lie between those of 2 and 64."""
    every, last = passes_of(placed(write(tmp_path)))
    rows, context = 32, 700
    layer = (sum(LAYER.values()) + LAYER["layernorm"]) * (1 + rows / 100)
    attention = LAUNCH + ROW * rows + (READ + PAIR) * rows * (context + 1)
    expected = 32 * (layer + attention) + (sum(STEP.values()) + sum(HEAD.values())) * (1 + rows / 100)
    ours = one_pass_s(every, last, [Part(1, context, 1, False)] * rows)
    assert 1e6 * ours == pytest.approx(expected, rel=0.001)
    assert every.mean_s(1, context, rows, rows - 1) == pytest.approx(ours)


def test_attention_is_fitted_to_steps_of_one_kind(tmp_path: Path) -> None:
    found = attention_of(Path(write(tmp_path)) / "attention.csv")
    measured = (found.launch_s, found.row_s, found.read_s, found.pair_s)
    assert [1e6 * time_s for time_s in measured] == pytest.approx([LAUNCH, ROW, READ, PAIR], rel=1e-6)


def test_experts_take_the_time_of_those_that_are_distinct(tmp_path: Path) -> None:
    every, _ = passes_of(placed(write(tmp_path, experts=True), "qwen3-30b-a3b@h100"))
    names = ("qkv_proj", "o_proj", "layernorm", "layernorm")
    rest = 48 * (1.64 * sum(LAYER[name] for name in names) + LAUNCH + 64 * ROW)
    rest += 1.64 * (sum(STEP.values()) + sum(HEAD.values()))
    experts = (1e6 * every.products_s(64) - rest) / 48
    assert experts == pytest.approx(50 + 6 * distinct_experts(128, 8, 64), rel=1e-6)


def test_an_estimate_says_that_its_operators_are_measured(tmp_path: Path) -> None:
    folder = write(tmp_path)
    profile = specfleet.estimate("llama-3.1-8b@rtx-4090", operators=folder)
    assert profile.sources["verify"].startswith(f"estimated: measured operators in {folder}")


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
