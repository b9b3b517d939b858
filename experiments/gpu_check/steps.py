"""Step times on the device's clock: what profiles are fitted to, for the demo pair and for models of real shapes.

Rows are seated at a context length without a prefill: what their storage holds does not change a step's time. A step
is repeated from the same state, which is put back outside of the clock.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch

from engine.decoding.cache import RowCache
from engine.decoding.draft import Drafter
from engine.decoding.eagle import EagleDrafter, head_shape
from engine.decoding.grow import Drafts
from engine.decoding.models import CausalLM
from engine.decoding.slots import SlotCache
from engine.decoding.telemetry import timed
from engine.decoding.trees import static_tree
from engine.decoding.verify import Target, no_drafts
from experiments.gpu_check.pairs import Pair, demo_pair, random_head, random_model
from experiments.gpu_check.place import Place, graphs, say

ROWS = (1, 2, 4, 8, 16)
DEPTHS = (1, 2, 4, 8)
FED = (2, 4, 6, 9, 16)  # tokens a row that a verification feeds; one is plain decoding
COLD = 4  # repetitions that do not count: graphs are captured
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
HEADROOM = 64

Row = dict[str, object]


def run_demo(place: Place) -> Row:
    """Steps of the demo pair."""
    return measured(place, demo_pair(place, "float32"), (64, 256, 1024), 30)


def run_7b_eagle(place: Place) -> Row:
    """Steps of a 7B target and an EAGLE head of its size."""
    target = random_model(place, place.pick("7B", "tiny"), "bfloat16")
    return measured(place, Pair(target, None, random_head(target)), (256, 1024, 4096), 20)


def run_7b_1b(place: Place) -> Row:
    """Steps of a 7B target and a 1B drafter."""
    target, small = (random_model(place, place.pick(shape, "tiny"), "bfloat16") for shape in ("7B", "1B"))
    return measured(place, Pair(target, small, None), (256, 1024, 4096), 20)


def measured(place: Place, pair: Pair, contexts: Sequence[int], repetitions: int) -> Row:
    """Measure all steps of a pair in all cells, and say what memory that took at most."""
    is_cuda = place.device.type == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(place.device)
    contexts, times = place.pick(contexts, (32,)), place.pick(repetitions, 2)
    rows = []
    for on in (False, True):
        with graphs(*pair.models, on=on):
            rows += [
                cell | {"graphs": on} | quantiles(place, work, restore, times)
                for cell, work, restore in steps_of(place, pair, contexts, on)
            ]
        say(f"steps: {len(rows)} cells are done")
    peak = torch.cuda.max_memory_allocated(place.device) if is_cuda else None
    weights = sum(
        weight.numel() * weight.element_size()
        for model in [*pair.models, *([pair.head.fc, pair.head.layers] if pair.head else [])]
        for weight in (model.model if isinstance(model, CausalLM) else model).parameters()
    )
    return {"precision": str(pair.target.dtype).removeprefix("torch."), "repetitions": times, "weights_bytes": weights,
            "peak_bytes": peak, "steps": rows}  # fmt: skip


def quantiles(place: Place, work: Callable[[], object], restore: Callable[[], None], repetitions: int) -> Row:
    """Repeat a step; return quantiles of its time in seconds."""
    times_s = []
    for number in range(-place.pick(COLD, 1), repetitions):
        _, time_s = timed(work, place.device)
        restore()
        if number >= 0:
            times_s.append(time_s)
    return {name: float(np.quantile(times_s, share)) for name, share in QUANTILES.items()}


Step = tuple[Row, Callable[[], object], Callable[[], None]]
"""What it is, the step itself, and how to put its state back."""


def steps_of(place: Place, pair: Pair, contexts: Sequence[int], captured: bool) -> Iterator[Step]:
    """Yield all steps that are measured; caches are made once, so that graphs stay.

    `captured`: only those that graphs can change, which are neither a head's nor long prefills.
    """
    counts, room = place.pick(ROWS, (1, 2)), max(contexts) + HEADROOM
    target = Target(pair.target, cache=pair.target.new_cache(max(counts), room))
    drafters: dict[str, Drafter] = {}
    if pair.small is not None:
        drafters["model"] = Drafter(pair.small, cache=pair.small.new_cache(max(counts), room))
    if pair.head is not None and not captured:
        model = pair.target
        cache = SlotCache(head_shape(pair.head), model.dtype, model.device, max(counts), room)
        drafters["EAGLE"] = EagleDrafter(pair.head, model, cache=cache)
    if not captured:
        yield from prefills(pair, contexts, target.cache, drafters)
    for context in contexts:
        for rows in counts:
            cell: Row = {"rows": rows, "context": context}
            yield from verifications(target, cell, place.pick(FED, (2,)))
            for kind, drafter in drafters.items():
                yield from draft_steps(kind, drafter, cell, place.pick(DEPTHS, (1, 2)))


def text_of(model: CausalLM, tokens: int) -> list[int]:
    """Return some text."""
    return np.random.default_rng(tokens).integers(model.vocabulary, size=tokens).tolist()


def prefills(pair: Pair, lengths: Sequence[int], cache: RowCache, drafters: dict[str, Drafter]) -> Iterator[Step]:
    """Prefill of one row, which is how the engine does it, by the length of its prompt."""
    models = {"target": (pair.target, cache)}
    if pair.small is not None:
        models["model"] = (pair.small, drafters["model"].cache)
    for name, (model, own) in models.items():
        for length in lengths:
            own.open(0, length)
            text = text_of(model, length)
            work = partial(model.prefill, own, 0, text)
            yield {"step": "prefill", "of": name, "rows": 1, "tokens": length}, work, partial(own.roll_back, 0, 0)
            own.close(0)


def verifications(target: Target, cell: Row, fed: Sequence[int]) -> Iterator[Step]:
    """Plain decoding and verification of chains."""
    rows, context = int(str(cell["rows"])), int(str(cell["context"]))
    tags, text = list(range(rows)), text_of(target.model, context)
    for tag in tags:
        target.open(tag, list(text))

    def restore() -> None:
        for tag in tags:
            del target.streams[tag].committed[context:]
            target.cache.lengths[tag] = context - 1

    restore()
    device = target.model.device
    for count in (1, *fed):
        drafts = no_drafts(rows, device)
        if count > 1:
            n = count - 1
            tokens = torch.randint(target.model.vocabulary, (rows, n), device=device)
            drafts = Drafts(static_tree((1,) * n, device), tokens, [n] * rows, [n] * rows)
        name = "verify" if count > 1 else "plain"
        yield {"step": name, **cell, "tokens": count}, partial(target.verify, tags, drafts), restore
    for tag in tags:
        target.release(tag)


def draft_steps(kind: str, drafter: Drafter, cell: Row, depths: Sequence[int]) -> Iterator[Step]:
    """Draft steps that draft so many tokens a row; drafting again puts the caches back by itself."""
    rows, context = int(str(cell["rows"])), int(str(cell["context"]))
    tags, text = list(range(rows)), text_of(drafter.model, context)
    for tag in tags:
        drafter.open(tag, list(text))
        drafter.cache.lengths[tag] = context - 1
        if isinstance(drafter, EagleDrafter):
            width = drafter.model.config.hidden_size
            drafter.features[tag] = torch.randn(2, width, device=drafter.model.device, dtype=drafter.model.dtype)
    for depth in depths:
        work = partial(drafter.draft, tags, [depth] * rows)
        yield {"step": "draft", "by": kind, **cell, "depth": depth}, work, lambda: None
    for tag in tags:
        drafter.release(tag)
