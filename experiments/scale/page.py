"""The page: what is assumed, what was simulated and computed, and what ends first, each number with its kind."""

import math
from collections.abc import Sequence
from itertools import groupby

import msgspec

from experiments.scale import places
from experiments.scale.equations import star_of
from experiments.scale.places import BETA, BITS, DEPTH, IN_GROUPS, IN_TURN, PLACES, TARGETS_OF_DRAFTER, Place
from experiments.scale.resources import (
    LOSS,
    OWN_LINK,
    TIME_IN_GROUPS,
    TIME_IN_TURN,
    Resource,
    age_of_loss,
    first_to_end,
    longest_text,
    lost,
    resources_of,
)
from experiments.scale.simulated import Simulated, place_of
from experiments.terminal.printing import number

LARGE_DRAFTERS = 100_000
LARGE = TARGETS_OF_DRAFTER * LARGE_DRAFTERS
MOST_OF_A_ROUND = 0.5
WRITTEN = """\
Written by `python -m experiments.scale -o docs`. Every number is **simulated** here, by **equations**,
**measured** here, or **assumed**; step times are estimated from models and devices (`specfleet reproduce
estimates` says what that misses by)."""
ASSUMED = f"""\
{TARGETS_OF_DRAFTER} targets a drafter, each with one request at a time, decoding all the time; prompts of
{places.PROMPT_TOKENS} tokens, answers of {places.NEW_TOKENS}; depth {DEPTH}, every draft token accepted with
probability {BETA:g}; no turnaround, no dispatch, and a router that takes no time; {places.MEMORY_SHARE:.0%} of
a drafter's device for weights and caches. A drafter serves its targets' drafts in turn, as StarSD does, or
whoever waits in one step (in groups). In the simulation each message has the whole bandwidth of its target's
link; who shares a drafter's port is counted, not simulated."""
STARS = """\
Targets stay with their drafters here, so a fleet of any size is so many stars that know nothing of each other,
and the equations' error at the simulated size is their error at any. They leave out prefills, and the first and
last rounds of a request. In groups they take half a step as the wait for the next one, which is too little
where all times are constant (rack): targets fall into step."""
ENDS = f"""\
Shares in use are those of the fleets above, with {TARGETS_OF_DRAFTER} targets a drafter; "ends at" is the
number of targets a drafter at which a resource is used up. A drafter in turn ends where it is busy all the time
(1 + Z/S); in groups it only gets slower, and is said to end where a user has half the pace that he has alone.
The port ends where targets at the pace of a free drafter fill it, one way."""
VIEWS = """\
whose sessions move at no cost: the share of the throughput that views of some age cost, beside fresh ones (simulated).
Fewer drafters than above, because a router looks at all of them for every round. It counts what it has sent since its
last news, so it does not send everybody to one drafter; what it does not know is who has finished. All targets begin at
once and decode one request: in the rack, where all times are constant, queues then stay alike and nobody moves, which
requests that come and go would change."""


class Results(msgspec.Struct, frozen=True):
    """Simulations of whole fleets and of routers, and the processor time of a router's decision over `drafters`."""

    fleets: list[Simulated]
    routers: list[Simulated]
    drafters: int
    decision_s: float


def page_of(results: Results) -> str:
    """Return the page in Markdown."""
    targets = TARGETS_OF_DRAFTER * results.drafters
    parts = [
        "# What ends first when a fleet grows",
        WRITTEN,
        answers(results),
        "## What is assumed",
        parameters(),
        f"## {targets:,} targets and {results.drafters:,} drafters, simulated; {LARGE:,} targets by equations",
        fleets_table(results),
        STARS,
        "## Which resource ends first",
        ENDS,
        *(place_part(place, results) for place in PLACES),
        "## A router's views",
        routers_part(results),
        "## The simulator at these sizes",
        "![time of a round and memory over N](scale.png)",
        "`python -m experiments.bench --only scale --figure FILE` measures and draws it again.",
    ]
    return "\n\n".join(parts) + "\n"


def parameters() -> str:
    """Return what is assumed, as the code has it."""
    rows = [
        [
            place.name, place.target, place.draft, f"{1e3 * place.latency_s:g} ms, {place.spread}",
            _bits(place.access_bytes_per_s), _bits(place.port_bytes_per_s), f"{1e3 * place.news_s:g} ms",
            f"{place.temperature:g}",
        ]
        for place in PLACES
    ]  # fmt: skip
    head = [
        "place", "targets", "drafters", "latency, one way", "a target's link", "a drafter's port",
        "age of a router's news", "temperature",
    ]  # fmt: skip
    return f"{ASSUMED}\n\n{_table(head, rows)}"


def fleets_table(results: Results) -> str:
    """Return a row for each fleet that was simulated: its rates, what they cost, and what the equations say."""
    rows = []
    for one in results.fleets:
        star = star_of(place_of(one.work))
        by_star = star.tokens_per_s(TARGETS_OF_DRAFTER, one.work.mode)
        here = one.work.drafters * by_star
        rows.append(
            [
                place_of(one.work).name, one.work.mode, number(one.tokens_per_s),
                number(one.tokens_per_s / one.targets), number(here), f"{here / one.tokens_per_s - 1:+.1%}",
                number(LARGE_DRAFTERS * by_star), f"{one.rounds:,} in {number(one.simulated_s)} s", one.path,
                number(one.cpu_s), number(one.peak_bytes / 1e6),
            ]
        )  # fmt: skip
    head = [
        "place", "drafts", "tokens/s, simulated", "a user, simulated", "tokens/s, equations", "error of these",
        f"tokens/s of {LARGE:,} targets, equations", "rounds, simulated", "path", "processor, s", "peak memory, MB",
    ]  # fmt: skip
    return _table(head, rows)


def answers(results: Results) -> str:
    """Return the answers: for each place what ends first, and what is to be said of routers."""
    return "\n".join([*(_answer(place, results) for place in PLACES), *_of_routers(results)])


def _answer(place: Place, results: Results) -> str:
    resources = _resources(place, results)
    in_turn, in_groups = first_to_end(resources, TIME_IN_GROUPS), first_to_end(resources, TIME_IN_TURN)
    link = next(one for one in resources if one.name == OWN_LINK)
    told = (
        f"- **{place.name}**: with drafts in turn the {in_turn.name.partition(',')[0]} ends first, at "
        f"{number(in_turn.ends_at)} targets a drafter; in groups the {in_groups.name.partition(',')[0]}, at "
        f"{number(in_groups.ends_at)} (equations)."
    )
    if link.used > MOST_OF_A_ROUND:
        told += f" Before either comes each target's own link, busy {link.used:.0%} of the time: that is the limit."
    return told


def _of_routers(results: Results) -> list[str]:
    ages = [
        f"{_age(age_of_loss(list(views)))} ({PLACES[place].name}; {1e3 * PLACES[place].news_s:g} ms are assumed)"
        for place, views in groupby(results.routers, key=lambda one: one.work.place)
    ]
    targets, most = TARGETS_OF_DRAFTER * results.drafters, 1 / results.decision_s
    busiest = max(results.fleets, key=lambda one: one.rounds_per_s)
    asked = f"{number(busiest.rounds_per_s)} times a second ({place_of(busiest.work).name}, simulated)"
    verdict = "it ends first of all: more routers, or affinity" if most < busiest.rounds_per_s else "that is enough"
    views = f"- A **router's views** cost {LOSS:.0%} of the throughput at an age of {', '.join(ages)}; simulated."
    router = (
        f"- **One router** for all {targets:,} targets would decide {asked}; ours takes "
        f"{number(1e6 * results.decision_s)} us over {results.drafters:,} drafters, so {number(most)} a second "
        f"(measured): {verdict}."
    )
    return [views, router]


def place_part(place: Place, results: Results) -> str:
    """Return what is known of a place's resources."""
    one = _fleet(place, results, IN_TURN)
    rows = [[each.name, f"{each.used:.2g}", _count(each.ends_at), each.how] for each in _resources(place, results)]
    of_token = (one.request_bytes + one.draft_bytes) / one.accepted_per_round
    head = ["resource", f"in use at {TARGETS_OF_DRAFTER} targets a drafter", "ends at", "kinds of these numbers"]
    return (
        f"### {place.name.capitalize()}\n\n{_table(head, rows)}\n\n"
        f"{number(of_token)} bytes travel for an accepted token, both ways (simulated). {TARGETS_OF_DRAFTER} sessions "
        f"fill a drafter's memory with texts of {number(longest_text(place))} tokens (estimated)."
    )


def routers_part(results: Results) -> str:
    """Return what a router's stale views cost."""
    rows = []
    ages: list[float] = []
    for place, views in groupby(results.routers, key=lambda one: one.work.place):
        of_place = lost(list(views))
        ages = [age for age, _ in of_place]
        rows.append([PLACES[place].name, *(f"{share:.1%}" for _, share in of_place)])
    first = results.routers[0]
    head = ["place", *(f"{1e3 * age:g} ms" for age in ages)]
    told = f"`shortest-queue` over {first.work.drafters} drafters and {first.targets:,} targets,"
    return f"{told}\n{VIEWS}\n\n{_table(head, rows)}"


def _resources(place: Place, results: Results) -> list[Resource]:
    return resources_of(place, _fleet(place, results, IN_TURN), _fleet(place, results, IN_GROUPS))


def _fleet(place: Place, results: Results, mode: str) -> Simulated:
    return next(one for one in results.fleets if place_of(one.work) == place and one.work.mode == mode)


def _count(targets: float) -> str:
    return "-" if math.isinf(targets) else number(targets)


def _age(age_s: float) -> str:
    return "more than was tried" if math.isinf(age_s) else f"{number(1e3 * age_s)} ms"


def _bits(bytes_per_s: float) -> str:
    bits = BITS * bytes_per_s
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
