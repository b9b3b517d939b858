"""The engine's laws on a device itself: the numbers of transformers, and the tokens of plain decoding in every mode.

In float64 every law must hold. In lower precision sums are rounded in another order wherever passes have another shape,
so two best tokens that are nearly alike may change places: there, texts that differ are counted, with the gap of the
two logits. It needs torch and transformers, and no other package.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from bench.harness import Aim, Report, Row, say
from engine.decoding.decode import decode_batch, decode_plain, decode_speculatively
from engine.decoding.draft import Drafter
from engine.decoding.eagle import EagleDrafter
from engine.decoding.eagle_files import load_head
from engine.decoding.graphs import Graphs
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import DEMO_PAIR, CausalLM, load_model
from engine.decoding.verify import Target
from engine.demo_pair.corpus import read_prompts
from fleet.errors import InputError
from fleet.policies.shapes import dynamic, tree

NEAR = {"float64": 1e-5, "float32": 1e-3, "bfloat16": 0.05}  # transformers' norms are never more precise than float32
ROWS = (1, 2, 4, 8, 16)
DEPTH = 4
SMALL_TREE, DYNAMIC = tree(3, 1), dynamic(3, 10)
Texts = list[list[int]]
NewDrafter = Callable[[], Drafter | LookupDrafter]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="where the models run")
    parser.add_argument("--short", action="store_true", help="two short texts, in float64 alone")


def study(options: argparse.Namespace) -> Report:
    """Check all laws in all precisions. Raises InputError where the device is not there."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise InputError("no cuda device on this host: nothing was checked")
    texts, new_tokens, sizes = (2, 6, (1, 2)) if options.short else (16, 40, ROWS)
    rows: list[Row] = []
    for precision in ["float64"] if options.short else NEAR:
        rows += of_precision(precision, options.device, prompts_of(texts), new_tokens, sizes)
        say(f"laws, {precision}: {sum(row['holds'] is False for row in rows)} of {len(rows)} rows are broken so far")
    return Report({f"the engine's laws on {options.device}": rows}, [Aim("broken laws", broken(rows), 0)])


def broken(rows: Sequence[Row]) -> int:
    """Count the laws that do not hold; those that are only counted have no verdict."""
    return sum(row["holds"] is False for row in rows)


def prompts_of(count: int) -> Texts:
    """Return prompts of the demo pair, of eight lengths from 64 tokens."""
    return [prompt[: 64 + 13 * (number % 8)] for number, prompt in enumerate(read_prompts("evaluation")[:count])]


@dataclass(frozen=True)
class Pair:
    """The demo pair in one precision on one device, and all ways to draft for its target by name."""

    precision: str
    target: CausalLM
    small: CausalLM
    drafters: dict[str, NewDrafter]
    captured: tuple[Graphs, Graphs]

    @contextmanager
    def graphs(self, on: bool) -> Iterator[None]:
        """Let the models run through graphs, or eagerly; on a cpu, where none are captured, eagerly both times."""
        models = (self.target, self.small)
        for model, captured in zip(models, self.captured, strict=True):
            model.graphs = captured if on else None
        yield
        for model, captured in zip(models, self.captured, strict=True):
            model.graphs = captured


def pair_of(precision: str, device: str) -> Pair:
    """Load the demo pair with its EAGLE head."""
    target, small = (load_model("demo", role, precision, device) for role in ("target", "drafter"))
    captured = target.graphs or Graphs(lambda work: work), small.graphs or Graphs(lambda work: work)
    return Pair(precision, target, small, drafters_of(small, target), captured)


def drafters_of(small: CausalLM, target: CausalLM) -> dict[str, NewDrafter]:
    """Return all ways to draft for the demo target; every drafter comes with the rule that suits it."""
    head = load_head(DEMO_PAIR / "eagle", target.model, target.dtype, target.device)
    return {
        "prompt lookup": lambda: LookupDrafter(target.device),
        "chain": lambda: Drafter(small),
        "tree": lambda: Drafter(small, SMALL_TREE, "without-replacement"),
        "dynamic tree": lambda: Drafter(small, DYNAMIC, "match"),
        "EAGLE chain": lambda: EagleDrafter(head, target),
        "EAGLE dynamic tree": lambda: EagleDrafter(head, target, DYNAMIC, "match"),
    }


def of_precision(precision: str, device: str, prompts: Texts, new_tokens: int, sizes: Sequence[int]) -> list[Row]:
    """Check all laws in one precision."""
    pair = pair_of(precision, device)
    rows = [numbers_row(pair, prompts[0])]
    plain = {on: texts_of(pair, None, prompts, new_tokens, on) for on in (False, True)}
    rows.append(texts_row(pair, "graphs change nothing", "plain", prompts, plain[False], plain[True]))
    few = len(prompts) // 2 or 1
    for name, new_drafter in pair.drafters.items():
        found = {on: texts_of(pair, new_drafter, prompts[:few], new_tokens, on) for on in (False, True)}
        law = "speculation decodes what plain decoding does"
        rows += [
            texts_row(pair, law, f"{name}, {'graphs' if on else 'eager'}", prompts, plain[False], found[on])
            for on in found
        ]
        rows.append(texts_row(pair, "graphs change nothing", name, prompts, found[False], found[True]))
        rows += batch_rows(pair, name, prompts, plain[False], sizes)
    return rows


def numbers_row(pair: Pair, tokens: list[int]) -> Row:
    """Compare the lean pass with transformers' own: root mean square of the difference over that of the logits."""
    model = pair.target
    with torch.inference_mode(), pair.graphs(on=False):
        theirs = model.model(input_ids=torch.tensor([tokens], device=model.device)).logits[0].double()
        cache = model.new_cache(1, len(tokens))
        cache.open(0)
        ours = model.logits(model.prefill(cache, 0, tokens)).double()
    off = float((ours - theirs).pow(2).mean().sqrt() / theirs.pow(2).mean().sqrt())
    return {
        "law": "the lean pass computes what transformers computes", "precision": pair.precision, "case": "",
        "texts": 1, "differ": None, "largest gap or difference": off, "holds": off <= NEAR[pair.precision],
    }  # fmt: skip


def texts_row(pair: Pair, law: str, case: str, prompts: Texts, wanted: Texts, found: Texts) -> Row:
    """Count the texts that differ; measure the gap of the target's two best logits where they part."""
    gaps = []
    for prompt, left, right in zip(prompts, wanted, found, strict=False):
        if left != right:
            place = next(i for i, pair_ in enumerate(zip(left, right, strict=True)) if pair_[0] != pair_[1])
            gaps.append(gap_after(pair, [*prompt, *left[:place]]))
    return {
        "law": law, "precision": pair.precision, "case": case, "texts": len(found), "differ": len(gaps),
        "largest gap or difference": max(gaps, default=0.0),
        "holds": not gaps if pair.precision == "float64" else None,
    }  # fmt: skip


def gap_after(pair: Pair, text: Sequence[int]) -> float:
    """Return how far the two best logits after a text lie apart, by the eager pass."""
    with pair.graphs(on=False):
        cache = pair.target.new_cache(1, len(text))
        cache.open(0)
        best = pair.target.logits(pair.target.prefill(cache, 0, text)[-1]).topk(2).values
    return float(best[0] - best[1])


def texts_of(pair: Pair, new_drafter: NewDrafter | None, prompts: Texts, new_tokens: int, on: bool) -> Texts:
    """Decode one prompt after the other over one storage, so that graphs are used again; `on`: with graphs."""
    cache = pair.target.new_cache()
    with pair.graphs(on):
        if new_drafter is None:
            return [decode_plain(Target(pair.target, cache=cache), prompt, new_tokens) for prompt in prompts]
        drafter = new_drafter()
        return [
            decode_speculatively(Target(pair.target, cache=cache), drafter, prompt, new_tokens, DEPTH)[0]
            for prompt in prompts
        ]


def batch_rows(pair: Pair, name: str, prompts: Texts, alone: Texts, sizes: Sequence[int]) -> list[Row]:
    """Decode rows side by side and hold them against the same rows alone; storage stays for all sizes."""
    rows, cache = [], pair.target.new_cache(max(sizes))
    for on in (False, True):
        with pair.graphs(on):
            drafter = pair.drafters[name]()
            texts = {
                size: decode_batch(Target(pair.target, cache=cache), drafter, prompts[:size], len(alone[0]), DEPTH)[0]
                for size in sizes
            }
        for size, found in texts.items():
            case = f"{name}, {size} rows, {'graphs' if on else 'eager'}"
            rows.append(texts_row(pair, "a batch decodes what its rows do alone", case, prompts, alone, found))
    return rows
