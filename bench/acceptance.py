"""When two fitted numbers predict as well as recorded acceptance: at other depths, and in the slowest requests.

Each record says how far a long draft agrees at every place of a text, so the rounds of any smaller depth are known.
Both models see rounds of 5 tokens; the truth is the rounds of each depth. At one target, with constant times, rates and
TPOT are those of rounds.
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.harness import Options, Report, Row, data_file, data_option
from bench.specdecode import FILE, read_recordings, walks_of
from specfleet.calibration.assemble import accepted_in
from specfleet.calibration.loops import recording_loop
from specfleet.engine.launch.serve import serve
from specfleet.experiments.demo.cells import calibration_scenario
from specfleet.fleet.acceptance.fits import fit_beta_geometric, mean_interval, total_variation
from specfleet.fleet.acceptance.models import AcceptanceModel, Recorded, Sampler, expected_committed

SEEN, DEPTHS = 5, (2, 5, 8, 16)
PROMPTS, ROWS, DEALS = 192, 16, 10  # requests of a record, and how often each is drawn
LENGTH = 128  # tokens of each text of SpecDecode-Bench
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
    drafters = msgspec.structs.replace(scenario.drafters, depth=DEPTHS[-1], place="target")
    loop = recording_loop(msgspec.structs.replace(scenario, drafters=drafters), PROMPTS, ROWS)
    record = Recorded(DEPTHS[-1], tuple(accepted_in([serve(loop).run])))
    return {depth: Recorded(depth, record.at(depth)[0]) for depth in DEPTHS}


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
    fit, mean = fit_beta_geometric(record), mean_interval(record.sessions)
    ours, recorded = (expected_committed(either, SEEN) for either in (fit, record))
    return {
        "record": name, **mean._asdict(), "tokens a round, %": 100 * (ours / recorded - 1),
        **msgspec.structs.asdict(fit), "total variation, %": 100 * total_variation(fit, record),
    }  # fmt: skip


def errors_of(name: str, rounds: Rounds) -> Iterator[Row]:
    """Yield the errors of the fit at each depth, and of the record where it knows the depth."""
    record = rounds[SEEN]
    size = min(sum(session) + len(session) for session in record.sessions), DEALS * len(record.sessions)
    for depth, truth in rounds.items():
        true = rounds_of_requests(truth, depth, *size)
        for model in (record, fit_beta_geometric(record)):
            if isinstance(model, Recorded) and depth > SEEN:
                continue
            ours = rounds_of_requests(model, depth, *size)
            slowest = np.percentile(ours, 99) / np.percentile(true, 99)
            row = {"record": name, "depth": depth, "model": str(model.__struct_config__.tag)}
            faster = true.mean() / ours.mean()
            yield row | {"tokens/s, %": 100 * float(faster - 1), "P99 of TPOT, %": 100 * float(slowest - 1)}


def rounds_of_requests(model: AcceptanceModel, depth: int, tokens: int, requests: int) -> NDArray[np.int64]:
    """Return the rounds of each request until it has so many tokens: its TPOT, where all rounds take as long."""
    sampler, rounds = Sampler(model, depth, np.random.default_rng(1)), np.zeros(requests, np.int64)
    for request in range(requests):
        sampler.begin_session(0, request)
        made = 0
        while made < tokens:
            made += sampler.draw(0, depth) + 1
            rounds[request] += 1
    return rounds
