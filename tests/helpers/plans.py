"""Questions of planning, as tests ask them."""

from typing import Any

from specfleet.experiments.plan.ask import about
from specfleet.experiments.plan.candidates import Asked, Candidate, make_candidates
from specfleet.experiments.plan.deployments import Load, Question
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.texts import read_budget
from specfleet.fleet.scenario.scenario import Scenario, Workload

SMALL = {"workload.new_tokens": 48, "workload.prompt_tokens": 64}
FEW = ["verifiers.count=1:4", "drafters.depth=2,4,6"]
TARGET, HEAD = "llama-3.1-8b@h100", "eagle3-llama-3.1-8b"
PAIR: dict[str, Any] = {
    "target": "llama-3.1-8b@h100", "draft": "llama-3.2-1b@l4", "link": "2ms", "acceptance": 0.8,
    "cost": "h100=3,l4=0.4", "jobs": 1,
}  # fmt: skip
LENGTHS = Workload(prompt_tokens=800, new_tokens=about(250))


def candidates(
    target: str, *drafts: str, devices: str = "", acceptance: str | tuple[str, ...] = "0.7", **more: Any
) -> list[Candidate]:
    """The candidates for a target, on a budget if there is one."""
    scenario = more.pop("scenario", Scenario(workload=LENGTHS))
    accepted = (acceptance,) if isinstance(acceptance, str) else acceptance
    budget = read_budget(devices) if devices else None
    return make_candidates(Asked(scenario, (target,), drafts, accepted, devices=budget, **more))[0]


def question(devices: str, target: str, load: Load, *drafts: str, slo: str = "", **more: Any) -> Question:
    """The question which fleet of a budget serves a load best."""
    made = candidates(target, *drafts, devices=devices, **more)
    return Question(
        tuple(made), load, tuple(parse_slo([slo] if slo else [])), read_budget(devices) if devices else None
    )
