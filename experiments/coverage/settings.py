"""The settings whose intervals are counted: closed stars, and open arrivals at the drafter, which are M/M/1."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleet.records.glossary import PERCENTILES, percentile_name
from fleet.records.window import LEVELS
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario

TARGETS = 16  # of open arrivals, which they take in turn: so many that prefills never wait
EXPONENTIAL = {"base_s": 1.0, "spread": {"spread": "exponential"}}


class Setting(NamedTuple):
    """A scenario to run with many seeds; `exact` holds the metrics that theory knows."""

    name: str
    scenario: Scenario
    exact: Mapping[str, float]


def settings() -> Iterator[Setting]:
    """Closed stars below, at and above N_full = 5, and open arrivals at four loads."""
    for N in (2, 5, 10):
        yield Setting(f"closed, N = {N}", closed_star(N), {})
    for load, requests in ((0.5, 3000), (0.8, 10000), (0.9, 24000), (0.95, 3000)):
        yield Setting(f"open, load {load:g}", open_star(load, requests), mm1_truth(load))


def closed_star(N: int, requests: int = 1500) -> Scenario:
    """S = 1 s and Z = 4 s, both exponential; requests of a few rounds, each with a prefill before."""
    return make_scenario(
        {
            "name": f"closed star, N = {N}",
            "acceptance": {"model": "geometric", "beta": 0.8},
            "profile": {
                "name": "exponential", "draft": EXPONENTIAL, "verify": EXPONENTIAL | {"base_s": 4.0},
                "verify_prefill": EXPONENTIAL | {"base_s": 4.0},
            },
            "drafters": {"depth": 5},
            "verifiers": {"count": N},
            "workload": {"requests": requests, "prompt_tokens": 10, "new_tokens": 10},
        }
    )  # fmt: skip


def open_star(load: float, requests: int) -> Scenario:
    """M/M/1 at the drafter: requests of two tokens, one from the prefill, one from a round that only drafting takes."""
    return make_scenario(
        {
            "name": f"open arrivals, load {load:g}",
            "acceptance": {"model": "geometric", "beta": 0.5},
            "profile": {
                "name": "exponential", "draft": EXPONENTIAL, "verify": {"base_s": 0.0}, "verify_prefill": EXPONENTIAL,
            },
            "drafters": {"depth": 1},
            "verifiers": {"count": TARGETS},
            "workload": {
                "requests": requests, "prompt_tokens": 1, "new_tokens": 2,
                "arrivals": {"process": "poisson", "per_s": load},
            },
        }
    )  # fmt: skip


def mm1_truth(load: float) -> dict[str, float]:
    """What M/M/1 says: times in it are exponential with rate 1 - load for a service of 1 s; requests are two tokens.

    A target has TARGETS gaps between two requests, so that a prefill waits in one of 100,000: the time to the first
    token is the prefill's, and requests that are each put off by such a time reach the drafter as Poisson ones again.
    """
    truth = {"throughput": 2 * load, "rounds_per_s": load, "load": load, "wait_s": load / (1 - load)}
    for name, rate, share in (("ttft_s", 1.0, 1.0), ("tpot_s", 1 - load, 1.0), ("wait_s", 1 - load, load)):
        truth |= {
            percentile_name(name, percentile): math.log(share / (1 - level)) / rate
            for percentile, level in zip(PERCENTILES, LEVELS, strict=True)
            if share > 1 - level  # of all; the others do not wait
        }
        truth[name] = share / rate
    return truth
