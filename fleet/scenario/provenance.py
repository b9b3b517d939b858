"""The models and prompts of a profile's measurements: calibration writes them, comparisons read them."""

from fleet.policies.shapes import CHAIN
from fleet.scenario.named_files import absolute
from fleet.scenario.scenario import Scenario


def provenance_of(scenario: Scenario) -> dict[str, str]:
    """Return the measured models and prompts of a scenario, by absolute paths, for the profile's provenance.

    >>> provenance_of(Scenario())["prompts_file"]
    'demo/evaluation'
    """
    scenario = absolute(scenario)
    drafters = scenario.drafters
    return {
        "drafter_kind": drafters.kind,
        "drafter_model": drafters.model,
        **({} if drafters.shape == CHAIN else {"drafter_shape": str(drafters.shape)}),
        "target_model": scenario.verifiers.model,
        "precision": scenario.precision,
        "prompts_file": scenario.workload.prompts,
    }
