"""Small fleets of every kind that supports faults, and random fault scripts, equal for equal seeds."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from specfleet.fleet.scenario.faults import Effect, Fault, Kill, LinkFault, NodeFault, Stall
from specfleet.fleet.scenario.names import drafter_name, verifier_name
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario

BUDGET = 5  # draft tokens a step, with grants
FLEETS: dict[str, dict[str, Any]] = {
    "star": {"verifiers": {"count": 3}},
    "shared target": {"verifiers": {"count": 1}, "workload": {"streams": 3}},
    "goodspeed": {
        "drafters": {"count": 3},
        "verifiers": {"count": 1, "late": "wait", "allocate": {"policy": "goodspeed", "budget": BUDGET}},
    },
    "work-conserving": {
        "drafters": {"count": 3},
        "verifiers": {"count": 1, "allocate": {"policy": "random-share", "budget": BUDGET}},
    },
    "narrow": {"verifiers": {"count": 1, "kv_tokens": 48, "max_num_batched_tokens": 6}, "workload": {"streams": 4}},
    "narrow and late": {
        "verifiers": {"count": 1, "kv_tokens": 48, "max_num_batched_tokens": 9, "late": "decode"},
        "workload": {"streams": 4},
    },
    "late": {"verifiers": {"count": 2, "late": "decode"}},
    "ahead": {"drafters": {"overlap": {"policy": "ahead", "least": 2}}, "verifiers": {"count": 2}},
    "ahead and busy": {"drafters": {"overlap": {"policy": "ahead", "busy": True}}, "verifiers": {"count": 2}},
    "routed": {"drafters": {"count": 2, "route": "shortest-queue"}, "verifiers": {"count": 3}},
    "batched drafter": {"drafters": {"group": {"policy": "batch", "most": 2}}, "verifiers": {"count": 3}},
    "admission": {"drafters": {"admit": {"policy": "at-most", "sessions": 2}}, "verifiers": {"count": 3}},
    "turns": {
        "devices": {"host": {}}, "drafters": {"device": "host"}, "verifiers": {"device": "host", "count": 2},
    },
    "contended": {
        "devices": {"host": {"sharing": "contended"}}, "drafters": {"device": "host"},
        "verifiers": {"device": "host", "count": 2},
    },
    "arrivals": {"verifiers": {"count": 3}, "workload": {"arrivals": {"process": "poisson", "per_s": 0.3}}},
}  # fmt: skip
NEW_TOKENS = 12
PROFILE: dict[str, Any] = {
    "name": "p",
    "draft": {"base_s": 0.05, "per_token_s": 0.03},
    "verify": {"base_s": 0.3},
    "decode": {"base_s": 0.25},
    "draft_prefill": {"base_s": 0.1},
    "verify_prefill": {"base_s": 0.1},
    "link": {"latency_s": 0.02},
}


def faulty(name: str, seed: int, **liveness: Any) -> Scenario:
    """The fleet of that name with the fault script of that seed."""
    fleet, plain = FLEETS[name], plain_fleet(name, seed, **liveness)
    drafters = [drafter_name(number, plain.drafters.count) for number in range(plain.drafters.count)]
    targets = [verifier_name(number) for number in range(fleet["verifiers"]["count"])]
    return msgspec.structs.replace(plain, faults=random_script(seed, drafters, targets, length_s=6.0, outage_s=2.0))


def plain_fleet(name: str, seed: int, patience_s: float = 1.0, rejoin_s: float = 0.7, lease_s: float = 3.0) -> Scenario:
    """The same fleet without a fault."""
    has_lengths = "ahead" in name or "allocate" in FLEETS[name]["verifiers"]
    content: dict[str, Any] = {
        "seed": seed,
        "acceptance": {"model": "geometric", "beta": 0.7},
        "profile": PROFILE,
        "drafters": {"lease_s": lease_s} | ({} if has_lengths else {"depth": 3}),
        "verifiers": {"patience_s": patience_s} | ({"rejoin_s": rejoin_s} if patience_s else {}),
        "workload": {"requests": 6, "prompt_tokens": 4, "new_tokens": NEW_TOKENS},
    }
    return make_scenario(content | {key: content.get(key, {}) | table for key, table in FLEETS[name].items()})


# Random scripts.

MAX_FAULTS = 3  # faults of stations, and as many of links
EFFECTS: tuple[Effect, ...] = ("drop", "delay", "duplicate", "reorder")
FOR_EVER = 0.2  # share of the kills of drafters without a restart


def random_script(
    seed: int, drafters: Sequence[str], targets: Sequence[str], length_s: float, outage_s: float
) -> tuple[Fault, ...]:
    """Draw up to three faults of stations and up to three of links, which begin within `length_s`.

    `outage_s`: their mean length; messages are late by that much at most. Targets always start again, since only they
    can finish their requests; drafters mostly.
    """
    rng = np.random.default_rng([seed, 4])
    nodes: list[Fault] = [
        _of_node(rng, drafters, targets, length_s, outage_s) for _ in range(rng.integers(MAX_FAULTS + 1))
    ]
    names = ["", *drafters, *targets]
    links: list[Fault] = [_of_link(rng, names, length_s, outage_s) for _ in range(rng.integers(MAX_FAULTS + 1))]
    return (*nodes, *links)


def _of_node(
    rng: np.random.Generator, drafters: Sequence[str], targets: Sequence[str], length_s: float, outage_s: float
) -> NodeFault:
    of_drafter = rng.random() < 0.6
    node = str(rng.choice(list(drafters if of_drafter else targets)))
    at_s, for_s = length_s * rng.random(), float(rng.exponential(outage_s)) + 1e-6
    if rng.random() < 0.3:
        return Stall(node, for_s, at_s)
    if of_drafter and rng.random() < FOR_EVER:
        return Kill(node, at_s)
    return Kill(node, at_s, for_s if rng.random() < 0.8 else 0.0)


def _of_link(rng: np.random.Generator, names: Sequence[str], length_s: float, outage_s: float) -> LinkFault:
    effect = EFFECTS[rng.integers(len(EFFECTS))]
    share, by_s = 0.5 * rng.random() ** 2 + 1e-6, outage_s * rng.random() + 1e-6
    node, at_s = str(rng.choice(list(names))), length_s * rng.random()
    for_s = None if rng.random() < 0.5 else float(rng.exponential(outage_s)) + 1e-6
    return LinkFault(effect, share, 0.0 if effect == "drop" else by_s, node, at_s, for_s)
