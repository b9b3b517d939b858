"""Drafters and targets as a scenario describes them."""

from engine.draft import Drafter
from engine.models import CausalLM
from engine.sampling import Sampling
from engine.verify import Target
from specfleet.scenario import Scenario


def sampling_of(scenario: Scenario) -> Sampling:
    """How the scenario's streams are drawn."""
    workload = scenario.workload
    return Sampling(workload.temperature, workload.top_k, workload.top_p)


def new_drafter(scenario: Scenario, model: CausalLM) -> Drafter:
    """A drafter of the scenario's fleet."""
    return Drafter(model, scenario.drafters.shape, scenario.verifiers.rule)


def new_target(scenario: Scenario, model: CausalLM) -> Target:
    """A target of the scenario's fleet."""
    return Target(model, scenario.verifiers.rule)
