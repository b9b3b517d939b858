"""Laws of decoding on this device, in float64: every way to draft gives the text of plain decoding, as the cpu does.

Greedy texts are those of plain decoding, alone and four side by side, with CUDA graphs and without. Sampled texts are
those of the cpu with the same random numbers. Attention over pages has half precision alone: its logits are held
against those by masks.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

import torch

from bench.decoding import drafters_of
from bench.harness import Aim, Options, Report, Row, first_rows
from bench.speculative import decode_batch, decode_plain, decode_speculatively
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.pages import find_fault
from specfleet.engine.decoding.sampling import GREEDY, Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.engine.demo_pair.corpus import read_prompts
from specfleet.experiments.console.printing import remark

PRECISION, PROMPT_TOKENS, NEW_TOKENS, DEPTH, SEED = "float64", 96, 48, 5, 3
WARM = Sampling(1.0)

HALF, APART, CLOSE = "bfloat16", "difference of logits over their deviation", 0.03

Texts = list[list[int]]

OPTIONS: Options = {
    "--prompts": {"type": int, "default": 4, "help": "texts of each way"},
    "--device": {"default": "", "help": "cpu or cuda; left out, cuda where there is one"},
}


def study(options: argparse.Namespace) -> Report:
    """Decode in every way, here and on the cpu."""
    torch.set_num_threads(1)
    place = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    prompts = [prompt[:PROMPT_TOKENS] for prompt in read_prompts("evaluation")[: options.prompts]]
    here, host = (pair_on(device) for device in (place, "cpu"))
    plain = [decode_plain(Target(host[1]), prompt, NEW_TOKENS) for prompt in prompts]
    rows = [plain_row(here, prompts, plain), *(row_of(name, here, host, prompts, plain) for name in drafters_of(*host))]
    other = sum(value == "other" for row in rows for value in row.values())
    device = torch.cuda.get_device_name() if place == "cuda" else "cpu"
    tables, aims = {f"texts on {device}, {PRECISION}": rows}, [Aim("ways with other texts", other, 0)]
    if beside := beside_masks(load_model("demo", "target", HALF, place), prompts[0]):
        tables[f"logits by pages on {device}, {HALF}"] = beside
        aims.append(Aim(f"{APART}, most", max(row[APART] for row in beside), CLOSE))
    return Report(tables, aims)


def pair_on(device: str) -> tuple[CausalLM, CausalLM]:
    """Load the demo pair, drafter first."""
    small, large = (load_model("demo", role, PRECISION, device) for role in ("drafter", "target"))
    return small, large


def plain_row(pair: tuple[CausalLM, CausalLM], prompts: Texts, plain: Texts) -> Row:
    """Compare plain decoding on this device with that of the cpu."""

    def decoded() -> Row:
        texts = [decode_plain(Target(pair[1]), prompt, NEW_TOKENS) for prompt in prompts]
        return {"greedy": verdict(texts, plain)}

    return {"way": "plain"} | first_rows({"plain": decoded})[0]


def row_of(
    name: str, here: tuple[CausalLM, CausalLM], host: tuple[CausalLM, CausalLM], prompts: Texts, plain: Texts
) -> Row:
    """Compare the texts of a way to draft: one by one, side by side, without graphs, sampled."""

    def texts_of(pair: tuple[CausalLM, CausalLM], sampling: Sampling) -> Texts:
        drafter = drafters_of(*pair)[name]
        target = Target(pair[1], drafter.rule)
        return [
            decode_speculatively(target, drafter, prompt, NEW_TOKENS, DEPTH, sampling, SEED)[0] for prompt in prompts
        ]

    def side_by_side() -> Texts:
        drafter = drafters_of(*here)[name]
        return decode_batch(Target(here[1], drafter.rule), drafter, prompts, NEW_TOKENS, DEPTH)[0]

    def without_graphs() -> Texts:
        graphs = here[0].graphs, here[1].graphs
        here[0].graphs = here[1].graphs = None
        try:
            return texts_of(here, GREEDY)
        finally:
            here[0].graphs, here[1].graphs = graphs

    works: dict[str, Callable[[], Row]] = {
        name: lambda: {"greedy": verdict(texts_of(here, GREEDY), plain)},
        f"{name}, side by side": lambda: {"side by side": verdict(side_by_side(), plain)},
        f"{name}, without graphs": lambda: {"without graphs": verdict(without_graphs(), plain)},
        f"{name}, sampled": lambda: {"sampled": verdict(texts_of(here, WARM), texts_of(host, WARM))},
    }
    return reduce(or_, first_rows(works), {"way": name})


def beside_masks(model: CausalLM, text: Sequence[int]) -> list[Row]:
    """Feed rows of unequal length of a text by pages and by masks; nothing where attention reads no pages."""
    if not model.new_cache().pages:
        if model.device.type == "cuda":
            remark(f"no attention by pages: {find_fault(model.device, model.dtype, model.shape.size)}")
        return []
    tags, equal = [0, 1, 2, 3], [3] * 4
    passes = {"prompt": [], "equal": equal, "again, captured": equal, "decoded": [1] * 4, "unequal": [1, 4, 2, 3]}

    def logits_of(pages: bool) -> dict[str, torch.Tensor]:
        cache = model.new_cache(len(tags))
        cache.pages = pages
        found: dict[str, torch.Tensor] = {}
        for tag in tags:
            cache.open(tag)
            found["prompt"] = model.logits(model.prefill(cache, tag, text[: 20 + 9 * tag]))
        for name, counts in list(passes.items())[1:]:
            ends = [(cache.lengths[tag], count) for tag, count in zip(tags, counts, strict=True)]
            tokens = [token for end, count in ends for token in text[end : end + count]]
            hidden = model.feed(cache, tags, torch.tensor(tokens, device=model.device), counts)
            found[name] = model.logits(hidden)
            cache.keep(tags, [range(count) for count in counts])
        return found

    pages, masks = (logits_of(paged) for paged in (True, False))
    apart = {name: float((pages[name] - masks[name]).float().std() / masks[name].float().std()) for name in passes}
    return [{"pass": name, APART: value} for name, value in apart.items()]


def verdict(texts: Texts, expected: Texts) -> str:
    """Return whether texts are the expected ones."""
    return "equal" if texts == expected else "other"
