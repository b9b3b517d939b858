"""What a fleet is to reach: `tpot_p99=40ms`, `tokens_per_s_per_user=40`, each a limit of one metric."""

import math
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.records.metrics.glossary import PERCENTILES, percentile_name
from specfleet.fleet.scenario.changes import parts_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.slo import miss

TIMES = {"ttft": "ttft_s", "tpot": "tpot_s", "latency": "latency_s", "e2el": "latency_s"}  # e2el: as in vLLM
FORMS = ("mean", *PERCENTILES)
USER = "tokens_per_s_per_user"
PER_USER = "tokens/s a user"
MOST = 1e9
ATTAINMENT = "slo_attainment"  # of the goals in the scenario's `[slo]`
WORDS = {
    "ttft": "get their first token within {}", "tpot": "get a token every {} or faster", "latency": "end within {}",
    "e2el": "end within {}", USER: "get {} tokens/s or more", "tokens_per_s": "get {} tokens/s or more in all",
    ATTAINMENT: "meet [slo] in {} of cases or more",
}  # fmt: skip


class Goal(msgspec.Struct, frozen=True):
    """A limit of a metric, in the metric's unit; `text`: as the user wrote it; `unit`: that it is shown in."""

    text: str
    metric: str
    limit: float
    sense: Literal["at most", "at least"]
    unit: str = "s"

    def shown(self, value: float) -> float:
        """Return a value of the metric in the goal's unit: a user's tokens a second are 1 / TPOT."""
        return value if self.unit != PER_USER else 1 / value if value else math.inf

    def miss(self, value: float) -> float:
        """By which share a value misses the goal; negative where there is room left."""
        return miss(value, self.limit) if self.sense == "at most" else miss(self.limit, max(value, 1e-12))

    def state(self, *ends: float) -> str:
        """Say whether all ends of a range meet the goal: met, at its edge, or missed."""
        sides = [self.miss(value) <= 0 for value in ends]
        return "met" if all(sides) else "at its edge" if any(sides) else "missed"


def read_goals(scenario: Scenario, slo: Iterable[str], least: Iterable[str]) -> tuple[Goal, ...]:
    """Read the goals of a plan of a scenario; InputError where its requests have no such metric."""
    goals = (*parse_slo(slo), *parse_least(least))
    if scenario.slo is None and any(goal.metric == ATTAINMENT for goal in goals):
        raise InputError(f"plan: {ATTAINMENT} is the share of requests that meet [slo], which the scenario has not")
    if scenario.workload.new_tokens == 1:
        raise InputError("plan: answers of one token have no time per output token; raise workload.new_tokens")
    return goals


def parse_slo(texts: Iterable[str]) -> list[Goal]:
    """Read `tpot_p99=40ms,ttft_p90=500ms`: the most that times of requests may be; InputError for anything else."""
    goals = []
    for text, name, value in _pairs("--slo", texts):
        plain = name.removesuffix("_s")
        kind, _, form = plain.partition("_")
        if kind not in TIMES or form not in FORMS:
            allowed = f"{', '.join(TIMES)}, each with {', '.join(f'_{level}' for level in FORMS)}"
            raise InputError(f"--slo {text}: no time of requests is called {name!r}; allowed: {allowed}")
        limit_s, said = number_of(f"--slo {text}", value, "limit_s"), "".join(value.split())
        if not said[-1].isalpha():
            raise InputError(f"--slo {text}: a time needs its unit; write {name}={said}ms, or {name}={said}s")
        goals.append(Goal(f"{plain} <= {said}", percentile_name(TIMES[kind], form), limit_s, "at most"))
    return goals


def parse_least(texts: Iterable[str]) -> list[Goal]:
    """Read `tokens_per_s=500,tokens_per_s_per_user_p99=40`: the least that is to be decoded; InputError as above.

    A user's tokens a second are 1 / TPOT: of the mean request, or of the one in a hundred that is slower than 99.
    """
    goals = []
    for text, name, value in _pairs("--least", texts):
        number = number_of(f"--least {text}", value, "per_s", share=name == ATTAINMENT)
        form = name.removeprefix(USER).removeprefix("_") or "mean"
        said = f"{name} >= {f'{100 * number:g}%' if name == ATTAINMENT else f'{number:g}'}"
        if name.startswith(USER) and form in FORMS:
            goals.append(Goal(said, percentile_name("tpot_s", form), 1 / number, "at most", PER_USER))
        elif name == "tokens_per_s":
            goals.append(Goal(said, "throughput", number, "at least", "tokens/s"))
        elif name == ATTAINMENT and number <= 1:
            goals.append(Goal(said, ATTAINMENT, number, "at least", "share"))
        else:
            users = ", ".join(f"{USER}_{form}" for form in FORMS[1:])
            allowed = f"tokens_per_s, {USER}, {users}, and {ATTAINMENT}, a share of requests"
            raise InputError(f"--least {text}: nothing is called {name!r}; allowed: {allowed}")
    return goals


def in_words(text: str) -> str:
    """Return a text with its goals in words: tpot_p99 <= 30ms is 99% of requests get a token every 30 ms or faster."""

    def worded(goal: re.Match[str]) -> str:
        misses, name, limit, by = goal.groups("")
        kind, _, form = name.rpartition("_") if name.endswith(FORMS) else (name, "", "")
        said = WORDS[kind].format(re.sub(r"(?<=\d)(?=[a-zµμ]+$)", " ", limit))
        of, mean = (f"{form[1:]}% of ", "") if form in PERCENTILES else ("", " on average" * (kind in (*TIMES, USER)))
        said = f"{of}requests {said}{mean}"
        return f"misses{by} that {said}" if misses else said

    return re.sub(rf"(misses )?((?:{'|'.join(WORDS)})\w*) [<>]= ([^\s,;:)]+)( by \d+%)?", worded, text)


def _pairs(option: str, texts: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    for text in (part for value in texts for part in parts_of(value)):
        name, separator, value = text.partition("=")
        if not separator or not name.strip() or not value.strip():
            raise InputError(f"{option} {text}: write NAME=VALUE, for example tpot_p99=40ms")
        yield text, name.strip(), value


def number_of(said: str, value: str, key: str, share: bool = False) -> float:
    """Read a number above 0, with a unit perhaps, in the unit of `key`; InputError, which begins with what was said."""
    try:
        number = quantity(value, key, share)
        number = float(value) if number is None else number
    except ValueError as error:
        raise InputError(f"{said}: {error}") from error
    if not 0 < number < MOST:
        raise InputError(f"{said}: needs a number above 0 and below {MOST:g}")
    return number
