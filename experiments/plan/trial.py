"""One simulation of a fleet with one seed, and what a choice looks at of it."""

import msgspec

from experiments.plan.prices import per_million_tokens
from experiments.plan.question import Question, Shape
from experiments.worlds import with_seed
from fleet.errors import InputError
from fleet.records.metrics import assess
from fleet.records.window import with_percentiles
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import mean_lengths
from sim.run import observe

KEPT = (
    "throughput", "slo_attainment", "load", "target_load", "wait_s", "service_s", "communication_s", "verify_s",
    "acceptance_length",
)  # fmt: skip
TIMES = ("tpot", "ttft", "latency")


class Trial(msgspec.Struct, frozen=True):
    """What one simulation says.

    Keys:
        shape: The fleet.
        seed (number): The seed, shared with the trials of other fleets.
        values: Metrics by name, of the whole fleet.
        overload: The verdict where it was offered more than it can carry; empty else.
    """

    shape: Shape
    seed: int
    values: dict[str, float]
    overload: str = ""


def try_out(question: Question, shape: Shape, seed: int) -> Trial:
    """Simulate a fleet once."""
    return trial_of(question, shape, seed, question.scenario(shape))


def trial_of(question: Question, shape: Shape, seed: int, scenario: Scenario) -> Trial:
    """Simulate a scenario in a fleet's place: of changed step times, for example."""
    copies = question.copies(shape)
    try:
        found = observe(with_seed(scenario, scenario.seed + seed))
        known, overload = assess(found)
    except InputError as error:
        raise InputError(f"{shape.title}: {error}") from error
    values = {
        name: metric.value for name, metric in with_percentiles(known).items() if name in KEPT or name.startswith(TIMES)
    }
    values["throughput"] *= copies
    if not question.arrivals_per_s:
        values["cost_per_million"] = per_million_tokens(question.cost_per_hour(shape), values["throughput"])
    else:  # what comes is what has to be decoded; how much of it falls into the window is chance
        values["cost_per_million"] = per_million_tokens(question.cost_per_hour(shape), offered_tokens_per_s(question))
    return Trial(shape, seed, values, overload.line() if overload is not None else "")


def offered_tokens_per_s(question: Question) -> float:
    """What the arrivals ask for in a second."""
    return question.arrivals_per_s * mean_lengths(question.workload)[1]
