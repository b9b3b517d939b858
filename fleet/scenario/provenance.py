"""The models and prompts of a profile's measurements: calibration writes them, comparisons read them."""

from collections.abc import Mapping
from typing import NamedTuple

from fleet.policies.shapes import CHAIN
from fleet.scenario.scenario import Scenario


class MeasuredOn(NamedTuple):
    """Models and prompts of a profile's measurements, as its scenario named them; empty if unknown."""

    drafter_model: str
    target_model: str
    prompts_file: str


def provenance_of(scenario: Scenario) -> dict[str, str]:
    """Return the measured models and prompts of a scenario, for the profile's provenance.

    >>> measured_on(provenance_of(Scenario()))
    MeasuredOn(drafter_model='demo', target_model='demo', prompts_file='demo/evaluation')
    """
    drafters = scenario.drafters
    return {
        "drafter_kind": drafters.kind,
        "drafter_model": drafters.model,
        **({} if drafters.shape == CHAIN else {"drafter_shape": str(drafters.shape)}),
        "target_model": scenario.verifiers.model,
        "precision": scenario.precision,
        "prompts_file": scenario.workload.prompts,
    }


def measured_on(provenance: Mapping[str, str]) -> MeasuredOn | None:
    """Return the models and prompts of a provenance; None if it names none."""
    if "drafter_model" not in provenance:
        return None
    return MeasuredOn(*(provenance.get(key, "") for key in ("drafter_model", "target_model", "prompts_file")))
