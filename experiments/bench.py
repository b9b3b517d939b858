"""Benchmarks beside peers, interleaved in one run: `python -m experiments.bench`.

Simulator: completed rounds a second with full records, beside a bare SimPy loop of the same network. Engine: tokens a
second for the demo pair, ours plain and speculative, beside transformers' plain and assisted `generate`, with the same
threads, precision and prompts.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import simpy
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import GenerationConfig

from engine.decode import decode_plain, decode_speculatively
from engine.draft import Drafter
from engine.models import CausalLM, load_model
from engine.prompts import prompts_of
from engine.verify import Target
from sim.run import simulate
from specfleet.intervals import student_t_interval
from specfleet.scenario import Scenario, make_scenario

DEPTH = 5
PROMPT_TOKENS, NEW_TOKENS = 128, 96
Timed = Mapping[str, list[float]]


def interleaved(contestants: Mapping[str, Callable[[int], int]], rounds: int, title: str) -> dict[str, list[float]]:
    """Let every contestant do round i before any does round i + 1; return units of work a second, by contestant."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in track(range(rounds), title, console=Console(stderr=True), transient=True):
        for name, work in contestants.items():
            started_s = time.perf_counter()
            done = work(number)
            rates[name].append(done / (time.perf_counter() - started_s))
    return rates


def star(requests: int) -> Scenario:
    """Eight targets, exponential times, acceptance as usual: the network of the bare loop."""
    profile = {
        "name": "bench",
        "draft": {"base_s": 1.0, "spread": "exponential"},
        "verify": {"base_s": 4.0, "spread": "exponential"},
        "link": {"latency_s": 0.1},
    }
    return make_scenario(
        {
            "name": "bench", "profile": profile, "acceptance": {"model": "geometric", "beta": 0.8},
            "verifiers": {"count": 8},
            "workload": {"requests": requests, "prompt_tokens": 10, "new_tokens": 100},
        }
    )  # fmt: skip


def simulated_rounds(requests: int) -> int:
    """Simulate with full records; return the completed rounds."""
    run = simulate(star(requests))
    return int(np.sum((run.table["event"].to_numpy() == "done") & (run.table["kind"].to_numpy() == "verify")))


def bare_rounds(rounds: int) -> int:
    """Complete `rounds` in a bare SimPy loop of the same network: resources, timeouts, nothing recorded."""
    env = simpy.Environment()
    rng = np.random.default_rng(0)
    drafter = simpy.Resource(env)
    completed = 0

    def target(verifier: simpy.Resource) -> Iterator[simpy.Event]:
        nonlocal completed
        while completed < rounds:
            yield env.timeout(0.1)
            with drafter.request() as turn:
                yield turn
                yield env.timeout(rng.exponential(1.0))
            yield env.timeout(0.1)
            with verifier.request() as turn:
                yield turn
                yield env.timeout(rng.exponential(4.0))
            completed += 1

    for _ in range(8):
        env.process(target(simpy.Resource(env)))
    env.run()
    return completed


def bench_simulator(repetitions: int) -> dict[str, list[float]]:
    """Rounds a second of simulator and bare loop."""
    return interleaved(
        {"specfleet, full records": lambda _: simulated_rounds(400), "bare SimPy loop": lambda _: bare_rounds(10_000)},
        repetitions,
        "simulator",
    )


def bench_engine(prompts: Sequence[list[int]], small: CausalLM, large: CausalLM) -> dict[str, list[float]]:
    """Tokens a second of each way to decode, prompt by prompt, greedily."""
    target, drafter = Target(large), Drafter(small)

    def generate(number: int, assistant: torch.nn.Module | None = None) -> int:
        inputs = torch.tensor([prompts[number]])
        settings = GenerationConfig(
            max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
        )
        output = large.model.generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=settings, assistant_model=assistant
        )
        return output.shape[1] - inputs.shape[1]

    def assisted(number: int, tokens: int, schedule: str, threshold: float) -> int:
        config = small.model.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = tokens, schedule
        config.assistant_confidence_threshold = threshold
        return generate(number, small.model)

    return interleaved(
        {
            "ours, plain": lambda number: len(decode_plain(target, prompts[number], NEW_TOKENS)),
            f"ours, speculative, d = {DEPTH}": lambda number: len(
                decode_speculatively(target, drafter, prompts[number], NEW_TOKENS, DEPTH)[0]
            ),
            "transformers, plain generate": generate,
            "transformers, assisted, its defaults": lambda number: assisted(number, 20, "constant", 0.4),
            f"transformers, assisted, d = {DEPTH}": lambda number: assisted(number, DEPTH, "constant", 0.0),
        },
        len(prompts),
        "engine",
    )


def show(title: str, unit: str, rates: Timed, base: str) -> None:
    """Print mean rates with 95 % intervals, and ratios to `base` taken pair by pair."""
    table = Table(title=title, title_justify="left")
    for heading in ("contestant", unit, "95 % interval", f"ratio: {base} over it"):
        table.add_column(heading)
    for name, values in rates.items():
        low, high = student_t_interval(values)[-2:]
        ratios = np.array(rates[base]) / np.array(values)
        ratio_low, ratio_high = student_t_interval(ratios)[-2:]
        table.add_row(
            name, f"{np.mean(values):,.0f}", f"{low:,.0f} .. {high:,.0f}",
            f"{np.mean(ratios):.2f} ({ratio_low:.2f} .. {ratio_high:.2f})",
        )  # fmt: skip
    Console(width=130).print(table)


def main() -> None:
    """Run both benchmarks and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=8, help="of the simulator's benchmark")
    parser.add_argument("--prompts", type=int, default=16, help="of the engine's benchmark")
    parser.add_argument("--threads", type=int, default=1, help="of torch, for every contestant")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    show(
        "simulator, one star of 8 targets", "rounds/s", bench_simulator(options.repetitions), "specfleet, full records"
    )
    scenario = make_scenario(
        {"workload": {"requests": options.prompts, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS}}
    )
    rates = bench_engine(prompts_of(scenario), load_model("demo", "drafter"), load_model("demo", "target"))
    show(
        f"demo pair, greedy, float32, {options.threads} thread(s), {NEW_TOKENS} new tokens after {PROMPT_TOKENS}",
        "tokens/s", rates, f"ours, speculative, d = {DEPTH}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
