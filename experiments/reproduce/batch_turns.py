"""Batch Speculative Decoding Done Right, table 3: what ExSpec gains in throughput and loses in tail latency.

Requests are turns of Spec-Bench: their lengths follow quantiles of its turns. Answers spread as latencies do where no
request waits.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from specfleet.experiments.reproduce import batch_model as model
from specfleet.experiments.reproduce.rows import Kind, PaperRow, reproduces, row
from specfleet.fleet.files import write_file
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.run import Run

TABLE_3, SPEC_BENCH = model.PAPER["table_3"], model.PAPER["spec_bench"]
SERVED = ("throughput", "P50 latency", "P90 latency", "P99 latency")  # columns of table 3
TURNS = SPEC_BENCH["turns"]  # that are simulated
WINDOW, MAX_PROMPT_TOKENS = 32, 1024  # defaults of the authors' program, which cuts longer prompts
CUT_SHORTER = 640  # tokens: set so that P90 at B = 4 and P99 at B = 8 have the order of table 3; medians then have not


Quantiles = tuple[tuple[float, ...], tuple[float, ...]]
"""Of the answers' lengths: levels from 0 to 1, and tokens at each; linear between."""


def evenly(number: int) -> Any:
    """Return that many levels between 0 and 1, in the middle of as many equal parts; an array of floats."""
    return (np.arange(number) + 0.5) / number


def turn_tokens(most: int) -> list[int]:
    """Return lengths of all turns, in tokens, shortest first: evenly over the levels, linear between quantiles.

    Those of more than `most` tokens are cut there.
    """
    quantiles = SPEC_BENCH["quantiles"]
    lengths = np.interp(evenly(SPEC_BENCH["turns"]), np.linspace(0, 1, len(quantiles)), quantiles).round().astype(int)
    cut: list[int] = np.minimum(lengths, most).tolist()
    return cut


def write_lengths(path: Path, requests: int, answers: Quantiles, seed: int, most: int) -> None:
    """Write a file for `workload.lengths`: turns of at most `most` tokens and answers, each in a random order."""
    rng = np.random.default_rng(seed)
    prompts = np.resize(rng.permutation(turn_tokens(most)), requests)
    lengths = np.interp(rng.permutation(evenly(requests)), *answers).round().astype(int)
    pairs = zip(prompts, np.maximum(lengths, 1), strict=True)
    rows = "".join(f"{prompt},{answer}\n" for prompt, answer in pairs)
    write_file(path, f"num_prefill_tokens,num_decode_tokens\n{rows}".encode())


def answers_of_table_3() -> Quantiles:
    """Return how long answers are: as EqSpec's latencies at batch size 1 spread, where no request waits.

    Their mean is that of table 2.
    """
    levels, latencies_s = (0.0, 0.5, 0.9, 0.99), (0.0, *TABLE_3[1]["EqSpec"][1:])
    longest_s = latencies_s[3] + (latencies_s[3] - latencies_s[2]) * (1.0 - levels[3]) / (levels[3] - levels[2])
    levels, latencies_s = (*levels, 1.0), (*latencies_s, longest_s)
    mean_s = float(np.mean(np.interp(evenly(1000), levels, latencies_s)))
    mean = (model.fitted().low + model.fitted().high) / 2
    return levels, tuple(mean * latency_s / mean_s for latency_s in latencies_s)


def run_turns(rows: dict[str, Any], seed: int, most_prompt_tokens: int = MAX_PROMPT_TOKENS) -> Run:
    """Simulate a run over the turns of Spec-Bench, in a random order."""
    with TemporaryDirectory() as folder:
        lengths = Path(folder) / "lengths.csv"
        write_lengths(lengths, TURNS, answers_of_table_3(), seed, most_prompt_tokens)
        return model.run_batch(rows, seed, requests=TURNS, lengths=str(lengths))


def service_latencies_s(run: Run) -> pd.Series:
    """Return the time from each request's first draft to its last token."""
    frame = run.frame()
    begun = frame[(frame.event == "start") & (frame.kind == "draft")].groupby(["tag", "request"]).time_s.min()
    ended = frame[(frame.event == "done") & (frame.kind == "verify")].groupby(["tag", "request"]).time_s.max()
    return (ended - begun).dropna()


def served(rows: dict[str, Any], most_prompt_tokens: int = MAX_PROMPT_TOKENS) -> tuple[float, ...]:
    """Return throughput and the latencies P50, P90 and P99 of table 3's workload under a rule."""
    runs = [run_turns(rows, seed, most_prompt_tokens) for seed in range(model.SEEDS)]
    latencies_s = pd.concat([service_latencies_s(run) for run in runs])
    throughput = float(np.mean([measure(run)["throughput"].value for run in runs]))
    return (throughput, *map(float, latencies_s.quantile([0.5, 0.9, 0.99])))


@reproduces(model.PAPER)
def batch_table3() -> Iterator[PaperRow]:
    """Table 3: what ExSpec gains in throughput and loses in tail latency, as ratios over EqSpec."""
    alone = 0.0
    for B, printed in TABLE_3.items():
        exspec, ours = model.exspec(B, window=max(WINDOW, B)), served(model.eqspec(B, fixed=False))
        ratios = np.divide(served(exspec), ours)
        for place, (quantity, ratio) in enumerate(zip(SERVED, ratios, strict=True)):
            paper = printed["ExSpec"][place] / printed["EqSpec"][place]
            kind: Kind = "predicted" if B > 1 or place == 0 else "identity"
            note = model.PAPER["unsettled"]["no_waits"] if B == 1 and place > 1 else ""  # of the tails
            yield row(f"{quantity}, ExSpec over EqSpec", {"B": B}, kind, paper, ratio, note=note)
        alone = alone or ours[0]
        if B > 1:
            paper = printed["EqSpec"][0] / TABLE_3[1]["EqSpec"][0]
            case: dict[str, Any] = {"method": "EqSpec", "B": B}
            yield row("throughput over batch size 1", case, "predicted", paper, ours[0] / alone)
            for quantity, ratio in zip(SERVED, np.divide(served(exspec, CUT_SHORTER), ours), strict=True):
                cut = {"B": B, "prompts cut at": CUT_SHORTER}
                yield row(f"{quantity}, ExSpec over EqSpec", cut, "fitted", None, ratio)
