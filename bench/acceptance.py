"""When two fitted numbers predict as well as recorded acceptance: at other depths, and in the slowest requests.

Each record says how far a long draft agrees at every place of a text, so the rounds of any smaller depth are known.
Both models see rounds of 5 tokens; the truth is the rounds of each depth. One target decodes all requests in turn, with
drafts of 1 ms a token and verifications of 20 ms.
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from bench.harness import Options, Report, Row, data_file, data_option
from bench.specdecode import FILE, read_recordings, walks_of
from specfleet.calibration.pair import measure_acceptance
from specfleet.calibration.run import pair_of
from specfleet.experiments.compare.compare import replicate
from specfleet.experiments.demo.cells import calibration_scenario
from specfleet.fleet.acceptance.fits import fit_beta_geometric, mean_interval, total_variation
from specfleet.fleet.acceptance.models import AcceptanceModel, Recorded
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve

SEEN, DEPTHS = 5, (1, 2, 3, 5, 8, 12, 16)
PROMPTS, SEEDS = 192, 8
LENGTH = 128  # tokens of each text of SpecDecode-Bench
COMPARED = {"tokens a round, %": "mean_acceptance_length", "tokens/s, %": "throughput", "P99 of TPOT, %": "tpot_p99_s"}
OPTIONS: Options = data_option(FILE)
Rounds = Mapping[int, Recorded]  # by depth


def study(options: argparse.Namespace) -> Report:
    """Compare both models with the truth, record by record; without data, those of the demo pair alone."""
    records = dict([("demo pair", of_demo_pair()), *(of_texts(options.data) if options.data else ())])
    errors = [row for name, rounds in records.items() for row in errors_of(name, rounds)]
    return Report({f"fits to rounds of {SEEN}": [fit_of(*record) for record in records.items()], "errors": errors})


def of_demo_pair() -> Rounds:
    """Record the demo pair; its greedy texts do not depend on the depth."""
    scenario = calibration_scenario()
    deep = msgspec.structs.replace(scenario, drafters=msgspec.structs.replace(scenario.drafters, depth=DEPTHS[-1]))
    with TemporaryDirectory() as folder:
        accepted = measure_acceptance(resolve(pair_of(deep, PROMPTS)), Path(folder)).accepted
    record = Recorded(DEPTHS[-1], tuple(map(tuple, accepted)))
    return {depth: Recorded(depth, record.at(depth)) for depth in DEPTHS}


def of_texts(data: Path) -> Iterator[tuple[str, Rounds]]:
    """Yield name and rounds of each of SpecDecode-Bench's sets and drafters, of texts that are long enough."""
    for (title, method), recorded in read_recordings(data_file(data, FILE)).items():
        texts = [text[:LENGTH] for text in recorded.texts if len(text) >= LENGTH][:PROMPTS]
        yield f"{title}, {method}", {depth: _walked(texts, depth) for depth in DEPTHS}


def _walked(texts: list[tuple[int, ...]], depth: int) -> Recorded:
    walks = walks_of(texts, [1] * len(texts), depth)
    rounds = np.split(walks.accepted.astype(int), list(accumulate(np.bincount(walks.request)))[:-1])
    return Recorded(depth, tuple(tuple(session.tolist()) for session in rounds))


def fit_of(name: str, rounds: Rounds) -> Row:
    """Return the fit, its distance from the rounds, and how much more alike the rounds of one request are."""
    record = rounds[SEEN]
    fit, every = fit_beta_geometric(record), np.concatenate(record.sessions)
    mean, low, high = mean_interval(record.sessions)
    independent = 2 * 1.96 * every.std(ddof=1) / np.sqrt(len(every))
    return {
        "record": name, "requests": len(record.sessions), "rounds": len(every), "accepted": mean, "low": low,
        "high": high, **msgspec.structs.asdict(fit), "total variation, %": 100 * total_variation(fit, record),
        "interval over that of independent rounds": (high - low) / independent,
    }  # fmt: skip


def errors_of(name: str, rounds: Rounds) -> Iterator[Row]:
    """Yield the errors of the fit at each depth, and of the record where it knows the depth."""
    record = rounds[SEEN]
    for depth, truth in rounds.items():
        true = simulated(truth, record, depth)
        for model in (record, fit_beta_geometric(record)):
            if isinstance(model, Recorded) and depth > SEEN:
                continue
            ours = simulated(model, record, depth)
            off = {column: 100 * (ours[metric] / true[metric] - 1) for column, metric in COMPARED.items()}
            yield {"record": name, "depth": depth, "model": model.__struct_config__.tag, **off}


def simulated(model: AcceptanceModel, record: Recorded, depth: int) -> dict[str, float]:
    """Return the metrics of a target that decodes each recorded request once, in the mean over seeds."""
    tokens = min(sum(session) + len(session) for session in record.sessions)
    content: dict[str, Any] = {
        "profile": {"name": "stated", "draft": {"per_token_s": 0.001}, "verify": {"base_s": 0.02}},
        "acceptance": msgspec.to_builtins(model),
        "drafters": {"depth": depth},
        "workload": {"requests": len(record.sessions), "prompt_tokens": 1, "new_tokens": tokens},
    }
    return {name: metric.value for name, metric in replicate(make_scenario(content), SEEDS).items()}
