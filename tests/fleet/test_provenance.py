"""A calibration's models and prompts are read back unchanged, with any path."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.policies.shapes import CHAIN, Shape, tree
from fleet.scenario.provenance import MeasuredOn, measured_on, provenance_of
from fleet.scenario.scenario import Drafters, DraftKind, Scenario, Verifiers, Workload

KINDS: list[DraftKind] = ["model", "eagle"]
TEXTS = st.text(min_size=1) | st.sampled_from(["models/a, b", "x, the first 3", "model x", "a, Shape(b)", "demo"])


@given(TEXTS, TEXTS, TEXTS, st.sampled_from(KINDS), st.sampled_from([CHAIN, tree(2, 1)]))
def test_what_was_written_is_read_whatever_the_paths(
    drafter: str, target: str, prompts: str, kind: DraftKind, shape: Shape
) -> None:
    drafters = Drafters(kind=kind, model=drafter, shape=shape)
    scenario = Scenario(drafters=drafters, verifiers=Verifiers(model=target), workload=Workload(prompts=prompts))
    written = provenance_of(scenario)
    assert all(isinstance(value, str) for value in written.values())
    assert measured_on(written) == MeasuredOn(drafter, target, prompts)
    assert (written["drafter_kind"], "drafter_shape" in written) == (kind, shape != CHAIN)


def test_a_provenance_without_models_names_none() -> None:
    assert measured_on({"cores": "2"}) is None
