"""Questions of planning, as tests ask them."""

from typing import Any

from specfleet.experiments.plan.ask import about
from specfleet.experiments.plan.candidates import Asked, Candidate, candidates_of
from specfleet.experiments.plan.deployments import Load, Question
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.texts import budget_of
from specfleet.fleet.scenario.scenario import Scenario, Workload

LENGTHS = Workload(prompt_tokens=800, new_tokens=about(250))


def candidates(
    target: str, *drafts: str, devices: str = "", acceptance: str | tuple[str, ...] = "0.7", **more: Any
) -> list[Candidate]:
    """The candidates for a target, on a budget if there is one."""
    scenario = more.pop("scenario", Scenario(workload=LENGTHS))
    accepted = (acceptance,) if isinstance(acceptance, str) else acceptance
    budget = budget_of(devices) if devices else None
    return candidates_of(Asked(scenario, (target,), drafts, accepted, devices=budget, **more))[0]


def question(devices: str, target: str, load: Load, *drafts: str, slo: str = "", **more: Any) -> Question:
    """The question which fleet of a budget serves a load best."""
    made = candidates(target, *drafts, devices=devices, **more)
    return Question(tuple(made), load, tuple(parse_slo([slo] if slo else [])), budget_of(devices) if devices else None)
