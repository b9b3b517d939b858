"""Measure the demo pair with a loop of its own: `python -m tools.demo_pair.measure` prints one JSON object.

The loop shares no code with the engine, so its figures are a check on the engine's. Accepted draft tokens a round are
properties of the weights and the prompts; times belong to the machine, and to what else ran on it.
"""

import argparse
import json
import sys
import time
from statistics import median

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaForCausalLM
from transformers.utils import logging

from engine.demo_pair.corpus import FOLDER, read_prompts

PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 16, 192, 96
DEPTHS = (4, 5, 8)
Times = dict[str, list[float]]


class Stream:
    """One model decoding one text: its cache holds a prefix of the committed tokens between two rounds."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model, self.cache = model, DynamicCache(config=model.config)

    def probabilities(self, tokens: list[int], temperature: float, last: int) -> torch.Tensor:
        """Feed the part of `tokens` that is not cached; return the `last` distributions (last, vocabulary).

        Temperature 0 puts all probability on the best token, so that greedy decoding needs no rule of its own.
        """
        new = torch.tensor([tokens[self.cache.get_seq_length() :]])  # (1, new tokens)
        logits = self.model(input_ids=new, past_key_values=self.cache, logits_to_keep=last).logits[0].double()
        if temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
        return torch.softmax(logits / temperature, -1)

    def forget_beyond(self, length: int) -> None:
        """Drop cached tokens from position `length` on."""
        if (surplus := self.cache.get_seq_length() - length) > 0:
            self.cache.crop(-surplus)


def sample(distribution: torch.Tensor, generator: torch.Generator) -> int:
    """Draw one token from a distribution (vocabulary,)."""
    return int(torch.multinomial(distribution, 1, generator=generator))


def plain(
    target: LlamaForCausalLM, prompt: list[int], temperature: float, generator: torch.Generator, step_ms: list[float]
) -> list[int]:
    """Decode without a drafter; append every step's time. Return the new tokens."""
    stream, tokens = Stream(target), list(prompt)
    stream.probabilities(prompt[:-1], temperature, 1)
    while len(tokens) < len(prompt) + NEW_TOKENS:
        started_s = time.perf_counter()
        tokens.append(sample(stream.probabilities(tokens, temperature, 1)[0], generator))
        step_ms.append(1000 * (time.perf_counter() - started_s))
    return tokens[len(prompt) :]


def speculative(
    pair: tuple[LlamaForCausalLM, LlamaForCausalLM],
    prompt: list[int],
    depth: int,
    temperature: float,
    generator: torch.Generator,
    times: Times,
) -> tuple[list[int], list[int]]:
    """Decode with chains of `depth` draft tokens (Leviathan et al. 2023, algorithm 1); append times in ms.

    Returns the new tokens and the accepted draft tokens of every round.
    """
    target, drafter = Stream(pair[0]), Stream(pair[1])
    tokens, accepted_of_rounds = list(prompt), []
    for stream in (target, drafter):
        stream.probabilities(prompt[:-1], temperature, 1)
    while len(tokens) < len(prompt) + NEW_TOKENS:
        tail, q = list(tokens), []
        for _ in range(depth):
            started_s = time.perf_counter()
            q.append(drafter.probabilities(tail, temperature, 1)[0])
            tail.append(sample(q[-1], generator))
            times["draft_step_ms"].append(1000 * (time.perf_counter() - started_s))
        started_s = time.perf_counter()
        p = target.probabilities(tail, temperature, depth + 1)
        draft, accepted = tail[len(tokens) :], 0
        while accepted < depth:
            token, chance = draft[accepted], float(torch.rand((), generator=generator, dtype=torch.float64))
            if chance * q[accepted][token] >= p[accepted][token]:
                break
            accepted += 1
        rest = p[accepted] if accepted == depth else (p[accepted] - q[accepted]).clamp(min=0)
        tokens += [*draft[:accepted], sample(rest, generator)]
        times["verification_ms"].append(1000 * (time.perf_counter() - started_s))
        accepted_of_rounds.append(accepted)
        for stream in (target, drafter):
            stream.forget_beyond(len(tokens) - 1)
    return tokens[len(prompt) :], accepted_of_rounds


def distinct_share(texts: list[list[int]], order: int = 4) -> float:
    """Share of distinct n-grams within a text, mean over texts: 1 if nothing repeats."""
    grams = [[tuple(text[i : i + order]) for i in range(len(text) - order + 1)] for text in texts]
    return sum(len(set(text)) / len(text) for text in grams) / len(grams)


@torch.inference_mode()
def measure() -> dict[str, object]:
    """Run greedy and temperature-1 decoding over the first evaluation prompts."""
    logging.disable_progress_bar()
    target, drafter = (
        AutoModelForCausalLM.from_pretrained(FOLDER / role, dtype=torch.float32, local_files_only=True).eval()
        for role in ("target", "drafter")
    )
    prompts = [prompt[:PROMPT_TOKENS] for prompt in read_prompts("evaluation")[:PROMPTS]]
    figures: dict[str, object] = {}
    for name, temperature in (("greedy", 0.0), ("temperature 1", 1.0)):
        step_ms: list[float] = []
        alone = [plain(target, prompt, temperature, torch.Generator().manual_seed(0), step_ms) for prompt in prompts]
        rows: dict[str, object] = {}
        for depth in DEPTHS:
            times: Times = {"draft_step_ms": [], "verification_ms": []}
            generator = torch.Generator().manual_seed(depth)
            done = [speculative((target, drafter), prompt, depth, temperature, generator, times) for prompt in prompts]
            rounds = [accepted for _, of_rounds in done for accepted in of_rounds]
            row: dict[str, float] = {"accepted_a_round": sum(rounds) / len(rounds), "rounds": len(rounds)}
            if temperature == 0:
                pairs = zip(done, alone, strict=True)
                row["equal_to_plain"] = sum(new[:NEW_TOKENS] == other for (new, _), other in pairs)
            rows[f"d = {depth}"] = row | {key: median(values) for key, values in times.items()}
        figures[name] = {
            "plain_step_ms": median(step_ms),
            "distinct_4_gram_share": distinct_share(alone),
            **rows,
        }
    return figures


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    json.dump(measure(), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
