"""Logs of servers say now and then how many requests run: their lines become rates, prompts and preemptions."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.sglang_log import read_sglang_log
from specfleet.calibration.readers.vllm_log import read_vllm_log
from specfleet.experiments.console.headline import headline
from specfleet.fleet.errors import InputError
from specfleet.fleet.times.profile import HardwareProfile
from tests.helpers.loads import DEPTH, load_in, log_text, sglang_log_text
from tests.helpers.readings import counted, mean_of, write

LOGS: dict[str, tuple[Callable[[Sequence[Path]], Recording], str, str]] = {
    "vLLM": (read_vllm_log, log_text([4, 4, 4], 400.0), log_text([2, 2, 2], 200.0, engine=1)),
    "SGLang": (read_sglang_log, sglang_log_text([4, 4, 4], rank=" DP0"), sglang_log_text([2, 2, 2], rank=" DP1")),
}


@pytest.mark.parametrize("name", LOGS)
def test_engines_of_one_log_are_added_up(tmp_path: Path, name: str) -> None:
    read, *texts = LOGS[name]
    *settings, _, _, _, _, _, _ = texts[0].splitlines()
    lines = [line for place in (-6, -4, -2) for text in texts for line in [*text.splitlines(), ""][place - 1 :][:2]]
    each = [load_in(read([write(tmp_path / f"{number}.log", text)])) for number, text in enumerate(texts)]
    both = load_in(read([write(tmp_path / "both.log", "\n".join([*settings, *lines]))]))
    assert (both.engines, both.running, both.kv_share, both.prompt_tokens) == (2, 6, 0.25, each[0].prompt_tokens)
    assert both.tokens_per_s == pytest.approx(sum(one.tokens_per_s or 0 for one in each))
    assert [way.time_s for way in both.ways] == pytest.approx([way.time_s for way in each[0].ways])


def test_engines_that_one_line_adds_up_are_several(tmp_path: Path) -> None:
    text = log_text([64, 64, 64])
    apart, together = (
        load_in(read_vllm_log([write(tmp_path / "s.log", each)]))
        for each in (text, text.replace("Engine 000:", "4 Engines Aggregated:"))
    )
    assert (together.running, together.kv_share, together.tokens_per_s) == (64, 0.25, apart.tokens_per_s)
    assert (apart.engines, together.engines) == (1, 4)


FULL = "[2026-05-27 20:14:00 {}] KV cache pool is full. Retract requests. #retracted_reqs: 12, #new_tokens_gained: 9\n"
PREEMPTED: dict[str, tuple[Callable[[Sequence[Path]], Recording], str, int | None]] = {
    "vLLM, nothing said": (read_vllm_log, log_text([4, 4, 4]), None),
    "vLLM": (read_vllm_log, log_text([4, 4, 4]).replace("GPU KV", "Preemptions: 3, GPU KV"), 6),
    "SGLang, a gauge": (read_sglang_log, sglang_log_text([4, 4]).replace("#queue", "#retracted-req: 7, #queue"), 0),
    "SGLang": (read_sglang_log, sglang_log_text([4, 4]) + FULL.format("TP0") + FULL.format("TP1"), 12),
}


@pytest.mark.parametrize("name", PREEMPTED)
def test_preemptions_are_those_that_a_log_counts(tmp_path: Path, name: str) -> None:
    read, text, count = PREEMPTED[name]
    assert load_in(read([write(tmp_path / "s.log", text)])).preemptions == count


def test_a_log_counts_intervals_between_running_requests(tmp_path: Path) -> None:
    load = load_in(read_vllm_log([write(tmp_path / "s.log", log_text([0, 4, 4, 2, 0, 4]))]))
    assert load.over.startswith("2 intervals")
    assert (load.running, load.waiting, load.kv_share) == (3.5, 1.0, 0.25)
    assert (load.max_num_seqs, load.max_num_batched_tokens) == (8, 512)
    assert load.round_s == pytest.approx(3.5 * (1 + DEPTH / 2) / 400, rel=0.01)


def test_a_logs_steps_without_a_draft_accept_nothing(tmp_path: Path) -> None:
    for idle, plain_per_s, steps_per_s in ((0, 200.0, 360), (1, 200.0, 360), (0, 8.0, 160)):
        drafting, waiting = log_text([4, 4, 4], plain_per_s=plain_per_s), log_text([4] * idle, plain_per_s, depth=0)
        if idle:  # the line of drafts after it covers twenty seconds
            drafting = drafting.replace("Accepted throughput: 240", "Accepted throughput: 120", 1)
        recording = read_vllm_log([write(tmp_path / "s.log", waiting + drafting)])
        steps = 30 * steps_per_s + 2000 * idle
        assert counted(recording)[:2] == (steps, 3 * 2400)
        assert mean_of(recording) == pytest.approx(1 + 3 * 2400 / steps, rel=1e-3)
        assert len(recording.counts.notes) == (plain_per_s > 100)  # few may be first tokens of answers
        assert load_in(recording).round_s == pytest.approx(4 / steps_per_s, rel=1e-3)


@pytest.mark.parametrize("plain_per_s", [8.0, 200.0])
def test_a_logs_cut_ends_and_mixed_engines_change_no_round(tmp_path: Path, plain_per_s: float) -> None:
    lines = log_text([4] * 6, plain_per_s=plain_per_s).splitlines()[2:]
    mixed = [
        line.replace("Engine 000", f"Engine 00{engine}")
        for pair in zip(lines[::2], lines[1::2], strict=True)
        for line in pair
        for engine in (0, 1)
    ]
    whole, *others = (
        read_vllm_log([write(tmp_path / "s.log", "\n".join(part))]) for part in (lines, lines[1:], lines[:-1], mixed)
    )
    for one in others:
        assert mean_of(one) == pytest.approx(mean_of(whole), rel=1e-3)
        assert load_in(one).round_s == pytest.approx(load_in(whole).round_s, rel=1e-3)


def test_sglangs_log_has_a_load_and_a_mean_length(tmp_path: Path) -> None:
    recording = read_sglang_log([write(tmp_path / "s.log", sglang_log_text([4, 4, 4]))])
    load = load_in(recording)
    assert (load.running, load.waiting, load.kv_share, load.max_num_seqs) == (4, 1, 0.25, 48)
    assert [way.time_s for way in load.ways] == pytest.approx([0.025, 0.025])
    assert mean_of(recording) == pytest.approx(2.5)
    with pytest.raises(InputError, match="accept len = 5, speculative_num_steps = 3; needs 1 to 4"):
        read_sglang_log([write(tmp_path / "s.log", sglang_log_text([4, 4], length=5))])
    with pytest.raises(InputError, match="holds no two lines `Decode batch`"):
        read_sglang_log([write(tmp_path / "s.log", sglang_log_text([4]))])


def test_prompts_of_sglangs_log_end_in_their_last_chunk(tmp_path: Path) -> None:
    whole = sglang_log_text([4, 4, 4])
    for batches, cached, prompt in (
        ([(1, 512), (1, 512), (1, 226)], 0, 1250),
        ([(3, 512), (2, 400)], 64, 228),
        ([(1, 512), (1, 512)], 0, 512),
    ):
        lines = [f"Prefill batch. #new-seq: {seqs}, #new-token: {tokens}, #cached-token: " for seqs, tokens in batches]
        text = "\n".join([re.sub("Prefill.*", "", whole), *(f"{line}{cached}" for line in lines)])
        load = load_in(read_sglang_log([write(tmp_path / "s.log", text)]))
        assert load.prompt_tokens is not None
        assert load.prompt_tokens.mean == prompt
        said = f"{cached * len(batches)} tokens of prompts came from a cache, and are left out of their lengths"
        assert load.notes == ((said,) if cached else ())


@pytest.mark.parametrize(("place", "intervals"), [(0, 4), (2, 3)])
def test_an_idle_time_is_no_interval_of_sglangs_log(tmp_path: Path, place: int, intervals: int) -> None:
    usual = "gen throughput (token/s): 400.00"
    parts = sglang_log_text([4, 4, 4, 4, 4]).split(usual)
    text = usual.join(parts[: place + 1]) + "gen throughput (token/s): 0.04" + usual.join(parts[place + 1 :])
    load = load_in(read_sglang_log([write(tmp_path / "s.log", text)]))
    assert load.over.startswith(f"{intervals} intervals")
    assert load.tokens_per_s == pytest.approx(400)


@pytest.mark.parametrize(
    ("held", "prompt", "said"), [("#token: 100, ", 25, "#token / #running-req"), ("", None, "1 token")]
)
def test_a_log_without_prefills_says_what_prompts_are(
    tmp_path: Path, held: str, prompt: float | None, said: str
) -> None:
    text = re.sub(r".*Prefill.*\n", "", sglang_log_text([4, 4, 4])).replace("#token: 100, ", held)
    load = load_in(read_sglang_log([write(tmp_path / "s.log", text)]))
    assert (load.prompt_tokens and load.prompt_tokens.mean) == prompt
    assert said in load.notes[0]


TREE = (Path(__file__).parent / "data" / "sglang-tree.log").read_text()
AT: dict[str, Any] = {"target": "llama-3.1-8b@h100", "draft": "eagle3-llama-3.1-8b", "fit": False}


def test_a_tree_is_priced_by_the_tokens_that_it_verifies(tmp_path: Path) -> None:
    chain = TREE.replace("eagle_topk=8", "eagle_topk=1").replace("draft_tokens=64", "draft_tokens=9")
    rounds = {}
    for text in (chain, TREE):
        made = specfleet.import_record("sglang-log", write(tmp_path / "s.log", text), tmp_path / "made.toml", **AT)
        drafters, comparison = made.scenario.drafters, specfleet.compare_load(made)
        assert comparison is not None
        rounds[drafters.shape.nodes(drafters.depth) + 1] = comparison.rows[2].simulated or 0
        assert any("a row verifies 64 tokens" in note for note in made.notes) == (text == TREE)
    assert list(rounds) == [9, 64]
    assert rounds[64] > 1.8 * rounds[9]


@pytest.mark.parametrize(
    ("width", "verified", "says"),
    [("1", "64", "a tree of 8 levels that is not EAGLE's: give --depth 63"), ("8", "9999", "needs 2 to 4096 tokens")],
)
def test_a_tree_that_is_not_known_is_refused(tmp_path: Path, width: str, verified: str, says: str) -> None:
    text = TREE.replace("eagle_topk=8", f"eagle_topk={width}").replace("tokens=64", f"tokens={verified}")
    with pytest.raises(InputError, match=says):
        read_sglang_log([write(tmp_path / "s.log", text)])


SETTINGS = {"speculative_num_steps": 8, "speculative_eagle_topk": 8, "speculative_num_draft_tokens": 64}
WRITTEN = {
    "JSON": json.dumps(SETTINGS),
    "lines": "".join(f"  {name} = {value},\n" for name, value in SETTINGS.items()),
    "a command": " ".join(f"--{name.replace('_', '-')} {value}" for name, value in SETTINGS.items()),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_settings_of_a_tree_are_read_in_each_form(tmp_path: Path, form: str) -> None:
    lines = TREE.partition("\n")[2]
    recording = read_sglang_log([write(tmp_path / "s.log", f"{WRITTEN[form]}\n{lines}")], depth=8)
    assert recording.shape.nodes(8) + 1 == 64
    chain = read_sglang_log([write(tmp_path / "s.log", lines)], depth=8)
    assert chain.counts is not None
    assert "taken to be chains" in chain.counts.notes[-1]


def test_a_log_of_two_servers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give the log of one"):
        read_sglang_log([write(tmp_path / "s.log", TREE + TREE.replace("tokens=64", "tokens=16"))])


@pytest.mark.parametrize(("tree", "is_read"), [("[(0,), (1,), (0, 0)]", False), ("[(0,), (0, 0)]", True)])
def test_a_log_of_vllm_states_no_tree(tmp_path: Path, tree: str, is_read: bool) -> None:
    stated = f"non-default args: {{'speculative_config': {{'speculative_token_tree': '{tree}'}}}}\n"
    file = write(tmp_path / "s.log", stated + log_text([4, 4, 4]))
    with nullcontext() if is_read else pytest.raises(InputError, match=r"line 1: .* a log of a tree is not read"):
        read_vllm_log([file])


INFERRED: dict[str, dict[str, object]] = {
    "another depth": {"drafters.depth": DEPTH - 1},
    "no drafts": {"drafters.count": 0},
    "drafts elsewhere": {"drafters.place": "own"},
    "a tree": {"drafters.shape": {"kind": "tree"}},
}


@pytest.mark.parametrize("name", INFERRED)
def test_times_of_one_depth_say_nothing_of_others(tmp_path: Path, name: str) -> None:
    file, out = write(tmp_path / "s.log", log_text([4, 4, 4])), tmp_path / "made.toml"
    made = specfleet.import_record("vllm-log", file, out)
    specfleet.simulate(out, {"drafters.depth": DEPTH, "workload.requests": 8})
    with pytest.raises(
        InputError, match=f"inferred from one load of depth {DEPTH}.* again with --target MODEL@DEVICE and --draft"
    ):
        specfleet.simulate(out, INFERRED[name])
    held = specfleet.simulate(out, {"workload.requests": 8})
    assert any("import again with --target MODEL@DEVICE to vary them" in note for note in held.notes)
    assert "within the target's rounds" in headline(held.metrics)["load"]
    with pytest.raises(InputError, match="step times are inferred at depth"):
        specfleet.import_record("vllm-log", file, out, depth=1)
    assert isinstance(made.scenario.profile, HardwareProfile)
    assert made.scenario.profile.inferred_at == (DEPTH, DEPTH)
    specfleet.import_record("vllm-log", file, out, depth=1, draft_ms=1, verify_ms=9)


@pytest.mark.parametrize("share", [0.62, 0.01])
@pytest.mark.parametrize("engine", ["vLLM's log", "SGLang's log"])
def test_prefix_hits_of_logs_are_not_predicted(tmp_path: Path, engine: str, share: float) -> None:
    rate = f"Prefix cache hit rate: {100 * share:.1f}%, GPU KV"
    cached = f"#cached-token: {round(230 * share / (1 - share))}"
    kind, text = {
        "vLLM's log": ("vllm-log", log_text([4, 4, 4]).replace("GPU KV", rate)),
        "SGLang's log": ("sglang-log", sglang_log_text([3, 4, 4]).replace("#cached-token: 0", cached)),
    }[engine]  # fmt: skip
    made = specfleet.import_record(kind, write(tmp_path / "a.txt", text), tmp_path / "made.toml")
    comparison = specfleet.compare_load(made)
    assert made.load is not None
    assert comparison is not None
    assert made.load.cached_share == pytest.approx(share, abs=0.005)
    says = "not predicted: prefix hits of 62% are not modelled"
    assert (says in made.notes, comparison.line() == says) == (share > 0.5, share > 0.5)
    kinds = {row.kind for row in comparison.rows}
    assert kinds == {"input", "not predicted" if share > 0.5 else "predicted"}
