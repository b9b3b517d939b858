"""What of a cell's prediction is chance: where its drafters are just filled, little leads a run quite another way.

Who comes first decides who waits for whom, and so who comes first in the next round. Two runs with the same steps are
then two samples. What is expected is the mean over simulations with the same steps and acceptance, whose delays are
drawn anew and differ by as much as a host's do from one minute to the next; and a run that is to be held against it
must be as long as these agree.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from experiments.replayed.cases import Planned
from fleet.records.metrics import measure
from fleet.records.playback import MECHANISM, Playback, playback_of
from fleet.scenario.scenario import Scenario
from fleet.times.overhead import Delay, Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from sim.run import simulate

NEARBY_S = tuple(1e-5 * place for place in range(-4, 5))  # changes of queued delays within minutes
LARGEST = 0.008  # chance of a cell that tells errors of some per cent
TINY = 0.05  # of a round, below which a wait is held against the whole round


def nearby(scenario: Scenario) -> list[Scenario]:
    """Return scenarios with delays of their own each; on average they differ by what a host's minutes do."""
    profile = scenario.profile
    assert isinstance(profile, HardwareProfile)

    def other(number: int, other_s: float) -> Scenario:
        own = profile.overhead.own
        queued = Delay(max(0.0, own.drafter.queued.mean_s + other_s), own.drafter.queued.spread)
        drafter = msgspec.structs.replace(own.drafter, queued=queued)
        changed = msgspec.structs.replace(profile, overhead=Overheads(StationOverheads(drafter, own.target)))
        return msgspec.structs.replace(scenario, profile=changed, seed=scenario.seed + number)

    return [other(number, other_s) for number, other_s in enumerate(NEARBY_S)]


def simulated_nearby(scenario: Scenario, playback: Playback | None = None) -> list[dict[str, float]]:
    """Return the metrics of each of the scenarios nearby.

    All of them play back the same steps: of the scenario's own simulation, or of `playback`.
    """
    steps = playback or playback_of(simulate(scenario), MECHANISM)
    runs = (simulate(each, playback=steps) for each in nearby(scenario))
    return [{key: metric.value for key, metric in measure(run).items()} for run in runs]


def mean_of(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means of what all of them have."""
    return {
        key: float(np.mean([each[key] for each in metrics])) for key in metrics[0] if all(key in m for m in metrics)
    }


def whole_of(quantity: str, value: float, round_s: float) -> float:
    """What an error of a quantity is relative to: the quantity itself, or for a tiny wait its round, in seconds."""
    return round_s if quantity == "wait_s" and value < TINY * round_s else value


def chance_of(quantity: str, metrics: Sequence[dict[str, float]], targets: int) -> float:
    """Standard deviation of a quantity over the scenarios nearby, relative as an error of it is.

    What grows evenly with that delay is no chance, and is not counted.
    """
    known = mean_of(metrics)
    values = np.array([each[quantity] for each in metrics])
    line = np.polynomial.Polynomial.fit(NEARBY_S, values, 1)
    deviation = math.sqrt(np.sum((values - line(np.array(NEARBY_S))) ** 2) / (len(values) - 2))
    return deviation / whole_of(quantity, known[quantity], targets / known["rounds_per_s"])


def long_enough(cell: Planned, quantities: Sequence[str], most_longer: int) -> Planned:
    """Return the cell with so many more requests that chance tells little, and no more than `most_longer` times."""
    if most_longer == 1:
        return cell
    metrics, targets = simulated_nearby(cell.scenario), cell.scenario.verifiers.count
    chance = max(chance_of(quantity, metrics, targets) for quantity in quantities)
    times = min(most_longer, max(1, math.ceil((chance / LARGEST) ** 2)))  # it falls with the root of the length
    workload = cell.scenario.workload
    longer = msgspec.structs.replace(workload, requests=times * workload.requests)
    return msgspec.structs.replace(cell, scenario=msgspec.structs.replace(cell.scenario, workload=longer))
