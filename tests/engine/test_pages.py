"""Attention over pages instead of masks: the same tokens and numbers, and no query token too many.

A cpu has no flash attention, so a reference in float64 takes its place.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from bench.speculative import decode_plain, decode_speculatively
from specfleet.engine.decoding import pages
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import EagleDrafter, EagleHead
from specfleet.engine.decoding.graphs import Graphs
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.pages import find_fault, reads_pages
from specfleet.engine.decoding.together import PromptPart, run_together
from specfleet.engine.decoding.verify import Target
from specfleet.engine.node import real
from specfleet.engine.node.real import executor_of
from tests.engine.test_batches import Part, batch
from tests.engine.test_graphs import ACTIONS, BEGIN, TEXT, Twins, tiny
from tests.engine.test_together import TEXTS
from tests.helpers.marks import slow
from tests.helpers.plain import plain_outputs, served_here, target_node
from tests.helpers.recorder import Recorder, taped
from tests.helpers.varlen import reading_pages, varlen_reference

CPU = torch.device("cpu")


@pytest.mark.parametrize("captured", [False, slow(True)], ids=["eager", "captured"])
@pytest.mark.parametrize("policy", ["adaedl", slow("dsde")])
def test_a_server_decodes_what_masks_decode(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, policy: str, captured: bool
) -> None:
    """Rows of unequal length, with drafts of unequal length, as on a GPU."""
    pair: Part = {
        "drafters": {"model": str(tiny / "kin")}, "verifiers": {"model": str(tiny / "target")},
        "workload": {"prompts": str(tiny / "long-prompts.jsonl")},
    }  # fmt: skip

    def on_a_gpu(*arguments: Any) -> Any:
        executor: Any = executor_of(*arguments)
        executor.target.rectangular = True
        for each in (executor.target, executor.drafter) if captured else ():
            each.model.graphs = Graphs(Recorder(taped))
        return executor

    scenario = batch("continuous", 4, pair, verifiers={"allocate": {"policy": policy}})
    wanted = plain_outputs(scenario)  # with masks
    monkeypatch.setattr(real, "executor_of", on_a_gpu)
    with reading_pages() as fed:
        assert served_here(target_node, scenario)[1] == wanted
    assert fed


@pytest.mark.parametrize("examples", [15, slow(80)])
def test_captured_passes_over_pages_compute_what_masks_do(examples: int) -> None:
    model, recorder = tiny(), Recorder(taped)
    cache = model.new_cache(1, 300)
    cache.open(0)
    model.prefill(cache, 0, TEXT[0, :300].tolist())  # its table of positions is long enough after this

    @given(ACTIONS)
    @settings(max_examples=examples)
    def law(actions: list[tuple[str, list[int], list[int], int]]) -> None:
        twins = Twins(model, recorder)
        twins.caches[1].pages = False
        for action in (BEGIN, *actions):
            twins.act(*action)

    with reading_pages() as fed:
        law()
    assert recorder.replayed > recorder.captured > 10  # else the law shows nothing
    assert fed


def test_parts_of_prompts_and_drafts_share_one_call_of_attention(tiny: Path) -> None:
    found = []
    for paged in (True, False):
        with reading_pages() as fed:
            target = Target(load_model(str(tiny / "target"), "target", "float64"))
            drafter = Drafter(load_model(str(tiny / "kin"), "drafter", "float64"))
            target.rectangular, target.cache.pages = True, paged
            for tag, text in enumerate(TEXTS[:4]):
                target.open(tag, text[: 12 + tag])
            for tag in (0, 1):
                drafter.open(tag, [*TEXTS[tag][: 12 + tag], target.prefill(tag).token])
            drafts = drafter.draft([0, 1], [3, 1])
            fed.clear()
            states, verdicts = run_together(target, [PromptPart(2, 5, False), PromptPart(3, 0, True)], [0, 1], drafts)
        assert fed == ([5 + 15 + 4 + 2] * target.model.shape.layers if paged else [])
        found.append(([target.committed(tag) for tag in range(4)], [*states.values(), verdicts[0].hidden[:4]]))
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_an_eagle_head_reads_pages() -> None:
    model = tiny()
    torch.manual_seed(7)
    head, prompt = EagleHead(model.config, model.model.get_input_embeddings()).double().eval(), TEXT[0, :30].tolist()
    wanted, accepted = decode_speculatively(Target(model), EagleDrafter(head, model), prompt, 40, 4)
    with reading_pages() as fed:
        drafter = EagleDrafter(head, model)
        assert drafter.cache.pages
        assert decode_speculatively(Target(model), drafter, prompt, 40, 4) == (wanted, accepted)
        assert decode_plain(Target(model), prompt, 40) == wanted
    assert fed


def test_pages_are_read_where_a_small_case_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = partial(find_fault.__wrapped__, CPU, torch.bfloat16, 16)
    assert "Error" in ask()  # torch has no such kernel for a cpu
    monkeypatch.setattr(pages, "kernel", lambda: varlen_reference)
    assert ask() == ""
    monkeypatch.setattr(pages, "kernel", lambda: partial(varlen_reference, from_the_end=False))
    assert "off" in ask()
    split = lambda *given, **more: varlen_reference(*given, **more) + (more["num_splits"] is None)  # noqa: E731
    monkeypatch.setattr(pages, "kernel", lambda: split)
    assert "off" in ask(), "a row alone"
    monkeypatch.setattr(pages, "kernel", lambda: lambda query, _key, _value: query)  # an older torch
    assert ask().startswith("TypeError: ")
    assert not reads_pages(CPU, torch.bfloat16, 16)
