"""Tokens a second of the demo pair: one stream by every way to decode, in turn with transformers; then batches."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from transformers import GenerationConfig

from engine.decoding.decode import decode_batch, decode_plain, decode_speculatively
from engine.decoding.draft import Drafter
from engine.decoding.verify import Target
from experiments.gpu_check.pairs import Pair, demo_pair, demo_prompts
from experiments.gpu_check.place import Place, graphs, say

PRECISION = "float32"
DEPTH = 5
ROWS = (1, 2, 4, 8, 16)
PROMPT = 128
IN_BATCHES = ("chain", "dynamic tree", "EAGLE chain")

Row = dict[str, object]
Done = tuple[int, Sequence[int]]
"""New tokens, and the accepted length of every round."""
Contestant = Callable[[int], Done]


def run(place: Place) -> Row:
    """Measure one stream and batches."""
    pair = demo_pair(place, PRECISION)
    new_tokens = place.pick(64, 6)
    single = interleaved(place, one_stream(pair, new_tokens), place.pick(16, 1), place.pick([0, 0], []))
    say("benchmark: one stream is done")
    batches = []
    for rows in place.pick(ROWS, (1, 2)):
        rounds = place.pick(3, 1)
        # Batches shrink in their own way each round: all of them are seen twice before they count.
        found = interleaved(place, side_by_side(pair, rows, new_tokens), rounds, place.pick([*range(rounds)] * 2, []))
        batches += [row | {"rows": rows} for row in found]
        say(f"benchmark: batches of {rows} are done")
    return {
        "precision": PRECISION,
        "depth": DEPTH,
        "prompt_tokens": PROMPT,
        "new_tokens": new_tokens,
        "single": single,
        "batches": batches,
    }


@dataclass(slots=True)
class Tally:
    """What a contestant did in the turns that count."""

    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def row(self, name: str) -> Row:
        """The contestant's row of the result."""
        rates = [tokens / time_s for tokens, time_s in zip(self.tokens, self.times_s, strict=True)]
        length = 1 + sum(self.accepted) / len(self.accepted) if self.accepted else None
        return {"name": name, "tokens_per_s": sum(rates) / len(rates), "tokens_per_s_by_turn": rates,
                "mean_acceptance_length": length}  # fmt: skip


def interleaved(place: Place, contestants: dict[str, Contestant], rounds: int, cold: Sequence[int]) -> list[Row]:
    """Let every contestant do round i before any does round i + 1.

    `cold` rounds come first and do not count: libraries are set up in them, and graphs are captured.
    """
    tallies = {name: Tally() for name in contestants}
    for turn, number in enumerate([*cold, *range(rounds)]):
        for name, work in contestants.items():
            place.finish()
            started_s = time.perf_counter()
            new_tokens, accepted = work(number)
            place.finish()
            time_s = time.perf_counter() - started_s
            if turn >= len(cold):
                tally = tallies[name]
                tally.tokens.append(new_tokens)
                tally.times_s.append(time_s)
                tally.accepted += accepted
    return [tally.row(name) for name, tally in tallies.items()]


def one_stream(pair: Pair, new_tokens: int) -> dict[str, Contestant]:
    """All ways to decode prompt i: ours with graphs and without, and transformers' own."""
    prompts, cache = demo_prompts(16, PROMPT, 0), pair.target.new_cache()

    def plain(number: int, on: bool) -> Done:
        with graphs(*pair.models, on=on):
            return len(decode_plain(Target(pair.target, cache=cache), prompts[number], new_tokens)), ()

    def speculative(number: int, drafter: Drafter, on: bool) -> Done:
        with graphs(*pair.models, on=on):
            target = Target(pair.target, drafter.rule, cache)
            tokens, accepted = decode_speculatively(target, drafter, prompts[number], new_tokens, DEPTH)
        return len(tokens), accepted

    ours: dict[str, Contestant] = {}
    for on, suffix in ((False, "eager"), (True, "graphs")):
        ours[f"plain, {suffix}"] = partial(plain, on=on)
        for name, new_drafter in pair.drafters().items():
            ours[f"{name}, {suffix}"] = partial(speculative, drafter=new_drafter(), on=on)
    return ours | theirs(pair, prompts, new_tokens)


def theirs(pair: Pair, prompts: Sequence[list[int]], new_tokens: int) -> dict[str, Contestant]:
    """transformers' own ways: plain, assisted at its defaults and at our depth."""
    assert pair.small is not None
    small = pair.small.model

    def generate(number: int, **options: object) -> Done:
        inputs = torch.tensor([prompts[number]], device=pair.target.device)
        settings = GenerationConfig(
            max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=0, do_sample=False
        )
        output = pair.target.model.generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=settings, **options
        )
        return output.shape[1] - inputs.shape[1], ()

    def assisted(number: int, tokens: int, threshold: float) -> Done:
        config = small.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = tokens, "constant"
        config.assistant_confidence_threshold = threshold
        return generate(number, assistant_model=small)

    return {
        "transformers, plain": generate,
        "transformers, assisted, its defaults": partial(assisted, tokens=20, threshold=0.4),
        f"transformers, assisted, depth {DEPTH}": partial(assisted, tokens=DEPTH, threshold=0.0),
    }


def side_by_side(pair: Pair, rows: int, new_tokens: int) -> dict[str, Contestant]:
    """Slot-addressed batches of so many rows, with graphs and without; every round has other prompts."""
    prompts, cache = demo_prompts(3 * rows, PROMPT, 0), pair.target.new_cache(rows)

    def of_round(number: int) -> list[list[int]]:
        return prompts[number * rows : (number + 1) * rows]

    def plain(number: int, on: bool) -> Done:
        target, batch = Target(pair.target, cache=cache), of_round(number)
        with graphs(*pair.models, on=on):
            for tag, prompt in enumerate(batch):
                target.open(tag, prompt, room=len(prompt) + new_tokens)
            for _ in range(new_tokens):
                target.decode(range(rows))
            for tag in range(rows):
                target.release(tag)
        return rows * new_tokens, ()

    def speculative(number: int, drafter: Drafter, on: bool) -> Done:
        with graphs(*pair.models, on=on):
            target = Target(pair.target, drafter.rule, cache)
            texts, accepted = decode_batch(target, drafter, of_round(number), new_tokens, DEPTH)
        return sum(map(len, texts)), accepted

    contestants: dict[str, Contestant] = {}
    for on, suffix in ((False, "eager"), (True, "graphs")):
        contestants[f"plain, {suffix}"] = partial(plain, on=on)
        for name, new_drafter in pair.drafters().items():
            if name in IN_BATCHES:
                contestants[f"{name}, {suffix}"] = partial(speculative, drafter=new_drafter(), on=on)
    return contestants
