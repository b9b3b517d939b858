"""Batches on the engine: whatever the rule, every row says what it says alone, and the log replays."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engine.batches import Batched, serve_batch  # noqa: E402  (after the check that torch is there)
from engine.decode import decode_plain, decode_speculatively  # noqa: E402
from engine.draft import Drafter  # noqa: E402
from engine.models import load_model  # noqa: E402
from engine.prompts import prompts_of  # noqa: E402
from engine.verify import Target  # noqa: E402
from specfleet.replay import replay  # noqa: E402
from specfleet.scenario import Scenario, make_scenario  # noqa: E402
from specfleet.workload import streams_of  # noqa: E402

RULES = {
    "slots": {"policy": "slots"},
    "EqSpec": {"policy": "realign"},
    "EqSpec, online": {"policy": "realign", "fixed": False},
    "ExSpec": {"policy": "same-length"},
    "rollback": {"policy": "rollback"},
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def batch(rule: str, size: int, **tables: dict[str, object]) -> Scenario:
    """The demo pair in float64 on prompts of mixed length."""
    policy = RULES[rule] | {"size": size} | ({"window": 3 * size} if rule == "ExSpec" else {})
    content: dict[str, dict[str, object]] = {
        "batch": {"rule": policy},
        "drafters": {"depth": 4},
        "workload": {
            "requests": max(6, size + 3),
            "prompt_tokens": {"low": 12, "high": 40},
            "new_tokens": {"low": 5, "high": 24},
        },
    }
    for name, table in tables.items():
        content[name] = content.get(name, {}) | table
    return make_scenario({"name": rule, "precision": "float64", **content})


def plain_outputs(scenario: Scenario) -> dict[int, list[int]]:
    target = Target(load_model(scenario.verifiers.model, "target", scenario.precision))
    prompts = prompts_of(scenario)
    return {
        request.number: decode_plain(target, prompts[request.number][: request.prompt_tokens], request.new_tokens)
        for requests in streams_of(scenario).values()
        for request in requests
    }


def check_lossless(scenario: Scenario) -> Batched:
    served = serve_batch(scenario, prompts_of(scenario))
    assert served.outputs == plain_outputs(scenario)
    assert replay(served.run) == []
    return served


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_says_exactly_what_plain_decoding_says(rule: str, size: int) -> None:
    check_lossless(batch(rule, size))


@pytest.mark.parametrize("rule", ["slots", "EqSpec"])
@pytest.mark.parametrize(
    "shape", [{"kind": "tree", "branching": [3, 2, 1]}, {"kind": "dynamic", "width": 3, "most": 8}], ids=str
)
def test_trees_in_batches_are_lossless_too(rule: str, shape: dict[str, object]) -> None:
    check_lossless(batch(rule, 4, drafters={"shape": shape}))


POLICIES = [
    {"policy": "fixed", "depth": 6},
    {"policy": "heuristic"},
    {"policy": "dsde", "calibration": 2},
    {"policy": "adaedl"},
    {"policy": "svip"},
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["policy"])
@pytest.mark.parametrize("rule", ["slots", "EqSpec", "ExSpec"])
def test_speculation_lengths_of_every_rows_own_are_lossless_too(rule: str, policy: dict[str, object]) -> None:
    check_lossless(batch(rule, 4, batch={"allocate": policy}))


@pytest.mark.parametrize("rule", ["slots", "EqSpec", "EqSpec, online", "ExSpec"])
def test_a_row_has_as_much_accepted_in_a_batch_as_alone(rule: str) -> None:
    """A drafter's cache that is wrong harms nothing but acceptance; so acceptance is a law too."""
    scenario = batch(rule, 4)
    rows = serve_batch(scenario, prompts_of(scenario)).run.frame()
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    small, large = (load_model("demo", role, "float64") for role in ("drafter", "target"))
    for requests in streams_of(scenario).values():
        for request in requests:
            prompt = prompts_of(scenario)[request.number][: request.prompt_tokens]
            _, accepted = decode_speculatively(Target(large), Drafter(small), prompt, request.new_tokens, 4)
            assert verified[verified.request == request.number].accepted.tolist() == accepted
