"""What faults do to the messages between a drafter and its targets, both ways: at the drafter's node."""

from collections.abc import Iterator

import numpy as np

from fleet.scenario.faults import LinkFault, LinkFaults, Way
from fleet.scenario.names import verifier_name
from fleet.scenario.settled import Fleet


class LossyLinks:
    """The links of drafter number `drafter`, in life number `life` of its process, from the seeds of the simulation.

    `zero_s`: the run's time zero by the engine's clock, to be set before anything is sent.
    """

    def __init__(self, fleet: Fleet, drafter: int, life: int = 0) -> None:
        self.fleet = fleet
        self.drafter = drafter
        self.life = life
        self.zero_s = 0.0
        self.faults: dict[tuple[int, Way], LinkFaults] = {}  # by target and direction
        self.last_s: dict[tuple[int, Way], float] = {}  # when the last message arrives of those that keep their order

    def arrivals_s(self, tag: int, way: Way, now_s: float) -> Iterator[float]:
        """When a message of a session arrives that is sent now, by the engine's clock: once, never, or more often."""
        link = self.fleet.target_of(tag), way
        for late_s, in_order in self._of(*link).copies(now_s - self.zero_s):
            arrives_s = now_s + late_s
            if in_order:
                arrives_s = self.last_s[link] = max(self.last_s.get(link, 0.0), arrives_s)
            yield arrives_s

    def _of(self, target: int, way: Way) -> LinkFaults:
        found = self.faults.get((target, way))
        if found is None:
            seed = [self.fleet.seed, 3, target, self.drafter, way == "up", *([self.life] if self.life else [])]
            name, rng = self.fleet.drafter_name(self.drafter), np.random.default_rng(seed)
            found = self.faults[target, way] = LinkFaults(self.fleet.faults, name, verifier_name(target), rng)
        return found


def lossy_links(fleet: Fleet, drafter: int, life: int = 0) -> LossyLinks | None:
    """Return the links of a drafter where the scenario has faults of links."""
    hit = any(isinstance(fault, LinkFault) for fault in fleet.faults)
    return LossyLinks(fleet, drafter, life) if hit else None
