"""Everything for one card: parts that end, go on, and never mix cards."""

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from bench import exact, gpu, steps
from bench.harness import Report, add_options
from bench.steps import Point, card_of, estimated_ms, limit_ms
from specfleet.engine.decoding import pages
from specfleet.engine.decoding.graphs import Graphs
from specfleet.engine.decoding.models import load_model
from specfleet.engine.demo_pair.corpus import read_prompts
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from tests.helpers.varlen import reading_pages, varlen_reference

HEAD = "eagle3-llama-3.1-8b"


def options(module: object, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    add_options(parser, module.OPTIONS)  # type: ignore[attr-defined]
    return parser.parse_args(words)


def tiny_steps(folder: Path, model: str = "llama-3.2-1b") -> Report:
    words = ("--tiny", "--device", "cpu", "--precision", "float32", "--models", model, "--out", str(folder))
    return steps.study(options(steps, *words))


def test_steps_go_on_after_the_kept_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tiny_steps(tmp_path)
    (rows,) = first.tables.values()
    assert [row["step"] for row in rows] == ["decode", "verify", "decode", "verify", "prefill"]
    assert all(row["ms"] > 0 for row in rows)
    path = tmp_path / "llama-3.2-1b.jsonl"
    lines = path.read_text().splitlines()
    write_file(path, "\n".join(lines[:3]) + "\n")
    measured: list[Point] = []
    monkeypatch.setattr(steps, "step_ms", lambda _model, point, _pages: measured.append(point) or {"ms": 1.0})
    tiny_steps(tmp_path)
    assert [(point.step, point.rows) for point in measured] == [("verify", 2), ("prefill", 1)]
    monkeypatch.setattr(steps, "random_model", lambda *_: pytest.fail("loads a model"))
    assert [row["ms"] for row in next(iter(tiny_steps(tmp_path).tables.values()))][3:] == [1.0, 1.0]


def test_both_ways_of_attention_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "reads_pages", lambda *_: True)
    with reading_pages() as fed:
        (rows,) = tiny_steps(tmp_path).tables.values()
    assert [row["attention"] for row in rows] == ["pages", "masks"] * 5
    assert fed
    ms = [row["ms"] for row in rows]
    assert rows[-2]["over masks"] == ms[-2] / ms[-1]


def test_a_draft_of_a_head_reads_it_in_each_pass(tmp_path: Path) -> None:
    (rows,) = tiny_steps(tmp_path, HEAD).tables.values()
    assert [(row["step"], row["tokens"], row["rows"]) for row in rows] == [("draft", 3, 1), ("draft", 3, 2)]
    layer = 4096 * (4096 * 2 * 1.5 + 4096 + 3 * 14336)  # queries, keys and values of two inputs; output; mlp
    weights_bytes = 2 * (layer + 4096 * 32_000)
    assert 3.35e9 * limit_ms(HEAD, Point("draft", 6, 1, 0), "h100") == pytest.approx(6 * weights_bytes, rel=1e-3)


def test_steps_of_another_device_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_steps(tmp_path)
    path = tmp_path / "llama-3.2-1b.jsonl"
    others = [json.dumps(json.loads(line) | {"device": "another"}) for line in path.read_text().splitlines()]
    write_file(path, "\n".join(others) + "\n")
    monkeypatch.setattr(steps, "step_ms", lambda *_: {"ms": 7.0})
    assert {row["ms"] for row in next(iter(tiny_steps(tmp_path).tables.values()))} == {7.0}
    assert len(path.read_text().splitlines()) == 2 * len(others)


def test_a_part_is_done_once_for_a_card_and_its_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = options(gpu, "--tiny", "--parts", "steps", "--out", str(tmp_path))
    monkeypatch.setattr(gpu, "host_facts", lambda: {"gpu": "NVIDIA Test 1", "torch": "2"})
    monkeypatch.setitem(gpu.PARTS, "steps", (0.01, ("steps", "--models", "llama-3.2-1b")))
    (left,) = gpu.study(asked).aims
    assert (left.value, left.verdict) == (1, "missed")  # it was cut off
    monkeypatch.setitem(gpu.PARTS, "steps", (120.0, ("steps", "--models", "llama-3.2-1b")))
    assert gpu.study(asked).aims[0].value == 0
    assert (tmp_path / "nvidia-test-1-tiny" / "steps" / "steps.json").exists()
    monkeypatch.setattr(gpu, "run_part", lambda *_: 3)
    assert gpu.study(asked).aims[0].value == 0
    assert gpu.study(options(gpu, "--parts", "steps", "--out", str(tmp_path))).aims[0].value == 1, "a small one"
    for facts in ({"gpu": "NVIDIA Test 2", "torch": "2"}, {"gpu": "NVIDIA Test 1", "torch": "3"}):
        monkeypatch.setattr(gpu, "host_facts", lambda facts=facts: facts)
        assert gpu.study(asked).aims[0].value == 1


@pytest.mark.parametrize("hangs", [[], *([name] for name in list(gpu.PARTS)[:-1])], ids=str)
def test_two_calls_do_all_parts_that_do_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: list[str]
) -> None:
    """Each part takes as long as stated. One that hangs is cut off, and comes last in further calls."""
    now_s, ran = [0.0], []

    def run_part(name: str, folder: Path, _tiny: bool, limit_s: float) -> int:
        needs_s, (study, *_) = gpu.PARTS[name]
        ran.append(name)
        now_s[0] += limit_s if name in hangs else needs_s
        if name not in hangs:
            write_file(folder / f"{study}.json", "{}")
        return 0

    monkeypatch.setattr(gpu, "host_facts", lambda: {"gpu": "NVIDIA Test 1", "torch": "2"})
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(gpu, "run_part", run_part)
    for number in (1, 2, 3):
        began_s = now_s[0]
        (left,) = gpu.study(options(gpu, "--out", str(tmp_path))).aims
        assert now_s[0] - began_s <= gpu.CALL_S
        if number == 2:
            assert left.value <= (3 if hangs else 0)
    assert left.value == len(hangs)
    assert ran[0] == "laws"


@pytest.mark.slow
def test_a_killed_call_goes_on_in_the_next(tmp_path: Path) -> None:
    """Its part ends with it: it would disturb the next one."""
    words = ("-m", "bench", "gpu", "--tiny", "--parts", "steps", "--out", str(tmp_path))
    call = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    while not (kept := list(tmp_path.rglob("*.jsonl"))):
        assert call.poll() is None
        time.sleep(0.05)
    (part,) = psutil.Process(call.pid).children()
    call.kill()
    call.wait()
    part.wait(10)
    lines = kept[0].read_text().splitlines()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    assert kept[0].read_text().splitlines()[: len(lines)] == lines


def test_without_a_card_the_parts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "host_facts", lambda: {"torch": "2"})
    with pytest.raises(InputError, match="no cuda device; --tiny"):
        gpu.study(options(gpu))


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("NVIDIA L4", "l4"), ("AMD EPYC", ""),
    ],
)  # fmt: skip
def test_cards_are_known_by_their_names(name: str, card: str) -> None:
    assert card_of(name) == card


def test_an_estimate_is_no_quicker_than_the_memory_limit() -> None:
    for point in (Point("decode", 1, 1, 256), Point("verify", 6, 16, 8192)):
        estimate = estimated_ms("llama-3.1-8b", point, "h100")
        assert estimate is not None
        assert estimate > limit_ms("llama-3.1-8b", point, "h100")
    assert estimated_ms("qwen3-14b", point, "rtx-4090") is None
    with pytest.raises(InputError, match="h101"):
        estimated_ms("qwen3-14b", point, "h101")


def test_logits_by_pages_are_held_against_those_by_masks() -> None:
    model, text = load_model("demo", "target", "float64", "cpu"), read_prompts("evaluation")[0]
    assert exact.beside_masks(model, text) == []
    model.graphs = Graphs(lambda work: work)
    with reading_pages():
        found = exact.beside_masks(model, text)
    assert [row["pass"] for row in found] == ["prompt", "equal", "again, captured", "decoded", "unequal"]
    assert max(row[exact.APART] for row in found) < 1e-9
    wrong = partial(varlen_reference, from_the_end=False)
    with reading_pages(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "kernel", lambda: wrong)
        assert exact.beside_masks(model, text)[-1][exact.APART] > exact.CLOSE
