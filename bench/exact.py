"""Laws of decoding on this device, in float64: every way to draft gives the text of plain decoding, as the cpu does.

Greedy texts are those of plain decoding, alone and four side by side, with CUDA graphs and without. Sampled texts are
those of the cpu with the same random numbers.
"""

import argparse

import torch

from bench.decoding import drafters_of
from bench.harness import Aim, Report, Row, run
from engine.decoding.decode import decode_batch, decode_plain, decode_speculatively
from engine.decoding.models import CausalLM, load_model
from engine.decoding.sampling import GREEDY, Sampling
from engine.decoding.verify import Target
from engine.demo_pair.corpus import read_prompts

PRECISION, PROMPT_TOKENS, NEW_TOKENS, DEPTH, SEED = "float64", 96, 48, 5, 3
WARM = Sampling(1.0)

Texts = list[list[int]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    parser.add_argument("--prompts", type=int, default=4, help="texts of each way")
    parser.add_argument("--device", default="", help="cpu or cuda; left out, cuda where there is one")


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
    return Report({f"texts on {device}, {PRECISION}": rows}, [Aim("ways whose texts are others", other, 0)])


def pair_on(device: str) -> tuple[CausalLM, CausalLM]:
    """Load the demo pair, drafter first."""
    small, large = (load_model("demo", role, PRECISION, device) for role in ("drafter", "target"))
    return small, large


def plain_row(pair: tuple[CausalLM, CausalLM], prompts: Texts, plain: Texts) -> Row:
    """Compare plain decoding on this device with that of the cpu."""
    (texts,) = run({"plain": lambda: [decode_plain(Target(pair[1]), prompt, NEW_TOKENS) for prompt in prompts]})[
        "plain"
    ]
    return {"way": "plain", "greedy": verdict(texts, plain)}


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

    works = {
        "greedy": (lambda: texts_of(here, GREEDY), lambda: plain),
        "side by side": (side_by_side, lambda: plain),
        "without graphs": (without_graphs, lambda: plain),
        "sampled": (lambda: texts_of(here, WARM), lambda: texts_of(host, WARM)),
    }
    found = run({f"{name}: {what}": work for what, (work, _) in works.items()})
    return {"way": name} | {
        what: verdict(found[f"{name}: {what}"][0], expected()) for what, (_, expected) in works.items()
    }


def verdict(texts: Texts, expected: Texts) -> str:
    """Return whether texts are the expected ones."""
    return "equal" if texts == expected else "other"
