"""How much room streams need in a cache: the longest draft, what a last round overshoots by, the longest row."""

from fleet.scenario.scenario import Scenario


def longest_draft(scenario: Scenario) -> int:
    """The longest draft that the scenario's rules allow."""
    rule = scenario.batch.allocate if scenario.batch is not None else scenario.verifiers.allocate
    decides = rule or scenario.drafters.allocate
    return scenario.drafters.depth if decides is None else decides.longest


def overshoot(scenario: Scenario) -> int:
    """Places that a row of a cache needs beyond its text: for its last round and its last draft."""
    return scenario.drafters.shape.room(longest_draft(scenario))


def longest_row(scenario: Scenario) -> int:
    """Places that a row of a cache needs at most."""
    workload = scenario.workload
    asked = [
        length if isinstance(length, int) else length.high for length in (workload.prompt_tokens, workload.new_tokens)
    ]
    return sum(asked) + overshoot(scenario)
