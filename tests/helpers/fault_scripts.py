"""Random fault scripts, equal for equal seeds, for simulated and real fleets."""

from collections.abc import Sequence

import numpy as np

from fleet.scenario.faults import Effect, Fault, Kill, LinkFault, NodeFault, Stall

MOST = 3  # faults of stations, and as many of links
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
    nodes: list[Fault] = [_of_node(rng, drafters, targets, length_s, outage_s) for _ in range(rng.integers(MOST + 1))]
    names = ["", *drafters, *targets]
    links: list[Fault] = [_of_link(rng, names, length_s, outage_s) for _ in range(rng.integers(MOST + 1))]
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
