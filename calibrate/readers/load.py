"""The load of a server as its records have it: requests, rates, times, and the time of a round by several ways."""

import math
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from specfleet.fleet.scenario.scenario import Verifiers

LEVELS = {"P50": 0.5, "P90": 0.9, "P99": 0.99}
AGREE = 0.05  # two ways to the same time differ by less
BLOCK = Verifiers().kv_block_size
FEW_CACHED = 0.05  # share of the prompts' tokens from a prefix cache, up to which a load is predicted


class Spread(msgspec.Struct, frozen=True):
    """A mean and quantiles by their names in `LEVELS`; `low` and `high` bound all values, `cv` is their variation."""

    mean: float
    quantiles: Mapping[str, float] = {}
    low: float = 0.0
    high: float = math.inf
    cv: float = 0.0

    def levels(self, scale: float) -> dict[str, float]:
        """Return mean and quantiles by name, in a unit of which `scale` make one of these."""
        return {name: scale * value for name, value in {"mean": self.mean, **self.quantiles}.items()}


def spread_of(values: ArrayLike) -> Spread | None:
    """Return the spread of single values; None without one."""
    numbers = np.asarray(values, dtype=float)
    if not numbers.size:
        return None
    quantiles = {name: float(np.quantile(numbers, level)) for name, level in LEVELS.items()}
    mean = float(numbers.mean())
    cv = float(numbers.std()) / mean if mean else 0.0
    return Spread(mean, quantiles, float(numbers.min()), float(numbers.max()), cv)


class Way(msgspec.Struct, frozen=True):
    """One way to the time of a round; `label`: measured or inferred."""

    name: str
    label: str
    time_s: float


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a server did over some time; None for what its records do not have.

    - `over`: the time and how it is known, in words.
    - `requests`: finished ones. `requests_per_s`, `tokens_per_s`: finished requests, and tokens of answers.
    - `prompt_tokens`, `new_tokens`: lengths.
    - `in_flight`: mean number of requests in the server; `running`, `waiting`: its parts; `seen`: it at moments.
    - `ttft_s`, `tpot_s`: of each request; `gap_s`: between a row's steps, which is the time of a round.
    - `prefill_s`: from a request's first step to its first token; `prompts_per_round` (tokens): mean of a step.
      `prompts_per_token`: tokens of prompts for each of answers, where single lengths are not there.
    - `tokens_per_round`: mean acceptance length, 1 without speculation.
    - `busy_share`: share of the time in which some request ran.
    - `ways`: to the time of a round, the best first.
    - `max_num_seqs`, `max_num_batched_tokens`, `kv_tokens`: settings of the server.
    - `limit`: of a client, the requests that it kept in flight, each after another; 0 if they arrived by themselves.
    - `asks`: what has to be stated before a scenario follows from it, in a line; empty if nothing.
    - `arrivals`: arrival (seconds), prompt and answer (tokens) of each request, if they arrived at recorded times.
    - `engines`: copies of the model that share the requests.
    - `cached_share`: of the prompts' tokens, which a prefix cache had. `whole_prompts`: whether their lengths count
      these, so that a workload of shared prompts follows. `again`: tokens of a hit that are computed again.
    """

    over: str
    requests: int = 0
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    prompt_tokens: Spread | None = None
    new_tokens: Spread | None = None
    in_flight: float | None = None
    running: float | None = None
    waiting: float | None = None
    seen: tuple[float, ...] = ()
    kv_share: float | None = None
    preemptions: int | None = None
    ttft_s: Spread | None = None
    tpot_s: Spread | None = None
    gap_s: Spread | None = None
    prefill_s: Spread | None = None
    prompts_per_round: float = 0.0
    prompts_per_token: float = 0.0
    tokens_per_round: float = 1.0
    busy_share: float | None = None
    ways: tuple[Way, ...] = ()
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_tokens: int | None = None
    arrivals: tuple[tuple[float, int, int], ...] = ()
    limit: int | None = None
    asks: str = ""
    engines: int = 1
    cached_share: float = 0.0
    whole_prompts: bool = False
    again: int = 0
    notes: tuple[str, ...] = ()

    @property
    def unpredictable(self) -> str:
        """Why its simulation predicts nothing, in words; empty if it does."""
        if self.seen and not (self.in_flight or (self.running and self.tokens_per_s)):  # at moments alone
            return "requests in flight are not known over its time"
        if self.cached_share <= FEW_CACHED or self.shared_share:
            return ""
        return f"prefix hits of {self.cached_share:.0%} are not modelled"

    @property
    def shared_share(self) -> float:
        """Part of each prompt that all share, of which the prefix cache had as much as it did; 0 if none follows."""
        if self.cached_share <= FEW_CACHED or not self.whole_prompts or self.prompt_tokens is None:
            return 0.0
        share = self.cached_share + self.again / self.prompt_tokens.mean
        return share if share < 1 else 0.0

    @property
    def round_s(self) -> float | None:
        """Time of a round: a step of a row with its drafts, by the best way."""
        return self.ways[0].time_s if self.ways else None

    def rows(self) -> Iterator[tuple[str | float | None, ...]]:
        """Yield what was observed: name, mean and the quantiles of `LEVELS`; times in ms."""
        named: dict[str, Spread | float | None] = {
            "requests finished": self.requests or None,
            "requests/s": self.requests_per_s,
            "tokens/s": self.tokens_per_s,
            "prompt, tokens": self.prompt_tokens,
            "answer, tokens": self.new_tokens,
            "prefix hits, share": self.cached_share or None,
            "in flight": self.in_flight,
            "running": self.running,
            "waiting": self.waiting,
            "busy, share of time": self.busy_share,
            "KV cache used, share": self.kv_share,
            "preemptions": self.preemptions,
            "TTFT, ms": self.ttft_s,
            "prefill, ms": self.prefill_s,
            "TPOT, ms": self.tpot_s,
            "time between a row's steps, ms": self.gap_s,
        }
        for name, value in named.items():
            if isinstance(value, Spread):
                levels = value.levels(1e3 if name.endswith("ms") else 1.0)
                yield name, *(levels.get(level) for level in ("mean", *LEVELS))
            elif value is not None:
                yield name, value, *(None for _ in LEVELS)

    def disagreement(self) -> str:
        """Say how far the ways to the time of a round are apart; empty with fewer than two."""
        if len(self.ways) < 2:
            return ""
        first, *others = self.ways
        apart = [other.time_s / first.time_s - 1 for other in others]
        worst = max(apart, key=abs)
        verdict = "agree within" if abs(worst) <= AGREE else "disagree: up to"
        return f"ways to the time of a round {verdict} {abs(worst):.1%}, {others[apart.index(worst)].name} the farthest"


def ways_of(
    gap_s: Spread | None,
    tpot_s: Spread | None,
    rows: float | None,
    tokens_per_s: float | None,
    rounds_per_s: float | None,
    tokens_per_round: float,
) -> tuple[Way, ...]:
    """Return the ways to the time of a round that the data allow.

    - `gap_s`: between a row's steps. `tpot_s`: of requests.
    - `rows`: requests that decode, on average. `rounds_per_s`: of all rows.
    """
    ways = []
    if gap_s:
        ways.append(Way("time between a row's steps", "measured", gap_s.mean))
    if rows and rounds_per_s:
        ways.append(Way("rows / (rounds/s)", "inferred", rows / rounds_per_s))
    if tpot_s:
        ways.append(Way("TPOT x tokens a round", "inferred", tpot_s.mean * tokens_per_round))
    if rows and tokens_per_s:
        ways.append(Way("rows x tokens a round / (tokens/s)", "inferred", rows * tokens_per_round / tokens_per_s))
    return tuple(way for way in ways if way.time_s > 0)
