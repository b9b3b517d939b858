"""Batch Speculative Decoding Done Right: equation (1), the speed-up of a batch, and figure 6, serving engines."""

from collections.abc import Iterator

from specfleet.experiments.reproduce import batch_model as model
from specfleet.experiments.reproduce.batch import ASSUMED
from specfleet.experiments.reproduce.rows import Inputs, PaperRow, assuming, claim, row
from specfleet.experiments.reproduce.runs import simulated
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.times.profile import HardwareProfile

SIZES = (1, 4, 8, 16, 32)
SERVED = 4  # requests of figure 6 over the batch size
# Pairs of figure 6 with a known shape: engine, target, drafter. Vicuna-7B has the shape of Llama-2-7B.
PAIRS = {
    ("vLLM", "Qwen3-8B and 0.6B"): ("vllm", "qwen3-8b@a100-80gb", "qwen3-0.6b@a100-80gb"),
    ("SGLang", "Vicuna-7B and EAGLE"): ("sglang", "llama-2-7b@a100-80gb", "eagle-llama-2-7b@a100-80gb"),
}


def speedup(accepted: float, draft: float, verify: float, overhead: float) -> float:
    """Return S of equation (1). `accepted`: alpha k, tokens a round; the costs are in steps of the target alone."""
    return accepted / (draft + verify + overhead)


@assuming(
    *ASSUMED,
    "a step of the target alone takes as long as a verification; finished rows are replaced at the next realignment",
    "alpha k is the simulated acceptance length; equation (1) leaves out the target's own token of a round",
)
def batch_eq1(_inputs: Inputs) -> Iterator[PaperRow]:
    """Equation (1) by batch size, of simulated acceptance, against the simulated speed-up."""
    draft_ms, verify_ms, _ = model.eqspec_times_ms()
    at_one_ms, a_row_ms = model.overhead_ms()
    ours: dict[int, float] = {}
    for B in SIZES:
        metrics = model.measured(model.eqspec(B, fixed=False), requests=model.PROMPTS + 8 * B)
        costs = (draft_ms / verify_ms, 1.0, (at_one_ms + (B - 1) * a_row_ms) / verify_ms)
        accepted = metrics["acceptance_length"].value
        ours[B] = metrics["throughput"].value * verify_ms / 1000 / B
        yield row("speed-up, by equation (1)", {"B": B}, "identity", speedup(accepted, *costs), ours[B])
        whole = speedup(accepted + 1, *costs)
        yield row("speed-up, with the target's own token", {"B": B}, "identity", whole, ours[B])
    for B in SIZES[1:]:
        yield claim("a batch does not add to the speed-up of one row", {"B": B}, ours[B] <= ours[1])


@assuming(
    "A100 80 GB, bf16, estimated by rooflines with each engine's host times; no other pair of the figure has a shape",
    (
        "neither acceptance nor batch sizes are in the text: acceptance as table 2 gives it, which is of one pair, "
        "drafts of 5, sizes as in figure 5b; EAGLE drafts a chain, not a tree"
    ),
    "prompts and answers are as long as table 2's; continuous batching by vLLM's rules for both engines",
)
def batch_fig6(_inputs: Inputs) -> Iterator[PaperRow]:
    """Figure 6: serving engines with speculation lag those without, the more so in larger batches."""
    for (name, models), (engine, target, draft) in PAIRS.items():
        profile = estimate(target, draft, engine=engine)
        gains = {B: served(profile, B, model.DEPTH) / served(profile, B, 0) for B in SIZES}
        case = {"engine": name, "models": models}
        for B, gain in gains.items():
            yield row("throughput with speculation over without", case | {"B": B}, "predicted", None, gain)
        yield claim("larger batches degrade it", case, gains[SIZES[-1]] < gains[1])
        if name == "vLLM":
            yield claim("speculation lags in the largest batch", case, gains[SIZES[-1]] < 1)
        else:
            yield claim("speculation lags in every batch", case, max(gains.values()) < 1)


def served(profile: HardwareProfile, B: int, depth: int) -> float:
    """Return the throughput of a target that serves B requests at a time; depth 0 is without speculation."""
    fit = model.fitted()
    run = simulated(
        name="batch-fig6",
        profile=profile,
        acceptance={"model": "geometric", "beta": fit.beta},
        drafters={"depth": depth, "place": "target"} if depth else {"count": 0},
        verifiers={"max_num_seqs": B},
        workload={
            "requests": SERVED * B + 8,
            "streams": B,
            "prompt_tokens": model.PROMPT_TOKENS,
            "new_tokens": {"low": fit.low, "high": fit.high},
        },
    )
    return measure(run)["throughput"].value
