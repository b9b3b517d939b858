"""The engine's laws on the device itself: the same numbers as transformers, the same tokens as plain decoding.

In float64 every law must hold. In lower precision sums are rounded in another order wherever passes have another shape,
so two best tokens that are nearly alike may change places: texts that differ are counted there, with the gap of the two
logits.
"""

from collections.abc import Callable, Sequence

import torch

from engine.decoding.decode import decode_batch, decode_plain, decode_speculatively
from engine.decoding.models import CausalLM
from engine.decoding.verify import Target
from experiments.gpu_check.pairs import Pair, demo_pair, demo_prompts
from experiments.gpu_check.place import Place, graphs, say

NEAR = {"float64": 1e-5, "float32": 1e-3, "bfloat16": 0.05}  # transformers' norms are never more precise than float32
ROWS = (1, 2, 4, 8, 16)
DEPTH = 4

Row = dict[str, object]
Texts = list[list[int]]


def run(place: Place) -> Row:
    """Check all laws in all precisions; a law that is only counted does not decide."""
    rows: list[Row] = []
    for precision in place.pick(list(NEAR), ["float64", "float32"]):
        pair = demo_pair(place, precision)
        judge = Judge(pair.target, precision)
        prompts, new_tokens = demo_prompts(place.pick(16, 2)), place.pick(40, 8)
        rows.append(lean_row(pair.target, prompts[0], precision))
        with graphs(*pair.models, on=False):
            alone = [decode_plain(Target(pair.target), prompt, new_tokens) for prompt in prompts]
        some = place.pick(8, 2)
        rows += speculation_rows(pair, judge, prompts[:some], alone[:some], new_tokens)
        rows += batch_rows(pair, judge, prompts, alone, place.pick(ROWS, (1, 2)))
        say(f"laws, {precision}: {len(rows)} rows so far, broken: {[row for row in rows if row['holds'] is False]}")
    return {"rows": rows, "holds": all(row["holds"] is not False for row in rows)}


class Judge:
    """Compares texts, in precisions where they must be equal and where they may part at a tie."""

    def __init__(self, target: CausalLM, precision: str) -> None:
        self.target, self.precision = target, precision

    def row(self, law: str, case: Row, prompts: Texts, wanted: Texts, found: Texts) -> Row:
        """Count the texts that differ; measure the gap of the target's two best logits where they part."""
        gaps = []
        for prompt, left, right in zip(prompts, wanted, found, strict=True):
            if left != right:
                place = next(i for i, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
                gaps.append(self.gap([*prompt, *left[:place]]))
        must = self.precision == "float64"
        holds = not gaps if must else None
        return {"law": law, "precision": self.precision, **case, "texts": len(prompts), "differ": len(gaps),
                "gaps_of_best_logits": gaps, "holds": holds}  # fmt: skip

    def gap(self, text: Sequence[int]) -> float:
        """Return how far the two best logits after a text lie apart, by the eager pass."""
        with graphs(self.target, on=False):
            cache = self.target.new_cache(1, len(text))
            cache.open(0)
            best = self.target.logits(self.target.prefill(cache, 0, text)[-1]).topk(2).values
        return float(best[0] - best[1])


def lean_row(model: CausalLM, tokens: list[int], precision: str) -> Row:
    """Compare the lean pass with transformers' own: root mean square of the difference over that of the logits."""
    with torch.inference_mode(), graphs(model, on=False):
        theirs = model.model(input_ids=torch.tensor([tokens], device=model.device)).logits[0].double()
        cache = model.new_cache(1, len(tokens))
        cache.open(0)
        ours = model.logits(model.prefill(cache, 0, tokens)).double()
    difference = float((ours - theirs).pow(2).mean().sqrt() / theirs.pow(2).mean().sqrt())
    return {"law": "the lean pass computes what transformers computes", "precision": precision,
            "relative_difference": difference, "largest_difference": float((ours - theirs).abs().max()),
            "allowed": NEAR[precision], "holds": difference <= NEAR[precision]}  # fmt: skip


def speculation_rows(pair: Pair, judge: Judge, prompts: Texts, alone: Texts, new_tokens: int) -> list[Row]:
    """Every way to draft, with graphs and without, against plain decoding without graphs."""
    rows = []
    texts: dict[tuple[str, bool], Texts] = {("plain", False): alone}
    for on in (False, True):
        for name, new_drafter in {"plain": None, **pair.drafters()}.items():
            if (name, on) not in texts:
                with graphs(*pair.models, on=on):
                    texts[name, on] = decoded(pair.target, new_drafter, prompts, new_tokens)
    for (name, on), found in texts.items():
        case: Row = {"kind": name, "graphs": on}
        if name != "plain":
            rows.append(judge.row("speculation decodes what plain decoding does", case, prompts, alone, found))
        if on:
            eager = texts[name, False]
            rows.append(judge.row("graphs change nothing", {"kind": name}, prompts, eager, found))
    return rows


def decoded(model: CausalLM, new_drafter: Callable[[], object] | None, prompts: Texts, new_tokens: int) -> Texts:
    """Decode one prompt after the other over one storage, as graphs like it."""
    cache = model.new_cache()
    if new_drafter is None:
        return [decode_plain(Target(model, cache=cache), prompt, new_tokens) for prompt in prompts]
    drafter = new_drafter()
    return [
        decode_speculatively(Target(model, cache=cache), drafter, prompt, new_tokens, DEPTH)[0] for prompt in prompts
    ]


def batch_rows(pair: Pair, judge: Judge, prompts: Texts, alone: Texts, sizes: Sequence[int]) -> list[Row]:
    """Rows side by side against the same rows alone; storage stays, as graphs like it."""
    rows = []
    for name, new_drafter in pair.drafters().items():
        cache, drafter = pair.target.new_cache(max(sizes)), new_drafter()
        for on in (False, True):
            for size in sizes:
                texts = prompts[:size]
                with graphs(*pair.models, on=on):
                    found, _ = decode_batch(Target(pair.target, cache=cache), drafter, texts, len(alone[0]), DEPTH)
                case: Row = {"kind": name, "graphs": on, "rows": size}
                rows.append(judge.row("a batch decodes what its rows do alone", case, texts, alone[:size], found))
    return rows
