"""No key is silently ignored: another value changes the simulation, is refused, or has a listed reason."""

from collections.abc import Iterator
from typing import Any

import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.values import keys_below, values_of

PROFILE: dict[str, Any] = {
    "name": "p",
    "draft": {"base_s": 0.5, "per_token_s": 0.1, "spread": {"spread": "exponential"}},
    "verify": {"base_s": 1.0, "per_token_s": 0.02, "per_row_token_s": 0.01},
    "draft_prefill": {"base_s": 0.2},
    "verify_prefill": {"base_s": 0.3},
    "decode": {"base_s": 0.4, "spread": {"spread": "exponential"}},
    "realign": {"base_s": 0.1},
    "link": {"latency_s": 0.05, "bandwidth_bytes_per_s": 1e5},
    "idle": {"gaps_s": [0.0, 1.0], "slowdowns": [1.0, 1.5]},
    "overhead": {
        "own": {"drafter": {"queued": {"mean_s": 0.01}}},
        "time_sliced": {"drafter": {"woken": {"mean_s": 0.2}}},
    },
    "contention": [1.0, 1.5],
    "vocabulary": 100,
    "hidden": 16,
}
COMMON: dict[str, Any] = {
    "profile": PROFILE,
    "acceptance": {"model": "geometric", "beta": 0.7},
    "verifiers": {"count": 2},
    "workload": {"requests": 9, "streams": 9, "prompt_tokens": 12, "new_tokens": 18, "temperature": 0.8},
}
HOST = {"device": "host"}
CORNERS: dict[str, dict[str, Any]] = {
    "star": {},
    "one session each": {
        "verifiers": {"count": 4},
        "workload": {"requests": 8, "prompt_tokens": 12, "new_tokens": 18},
    },
    "shared": {"devices": {"host": {}}, "drafters": HOST, "verifiers": HOST | {"count": 2}},
    "routed": {
        "drafters": {
            "count": 2, "route": "predicted", "order": {"policy": "deadline", "goals_s": [9.0, 1.0]},
            "tiers": [{"first": 2, "step": {"base_s": 0.9}}],
        }
    },
    "aligned": {
        "drafters": {"place": "target"},
        "verifiers": {
            "max_num_seqs": 2, "aligned": {"policy": "same-length", "window": 4},
            "allocate": {"policy": "random-share", "budget": 8},
        },
        "workload": {"requests": 9, "streams": 9, "prompt_tokens": {"low": 8, "high": 9}, "new_tokens": 18},
    },
    "ahead": {"drafters": {"overlap": "ahead"}},
    "barrier": {
        "drafters": {"count": 3},
        "verifiers": {"count": 1, "late": "wait", "allocate": {"policy": "goodspeed", "budget": 20, "eta": 0.9}},
    },
    "no drafter": {"drafters": {"count": 0}},
    "drafts at targets": {"drafters": {"place": "target"}},
    "faulty": {
        "drafters": {"lease_s": 4.0},
        "verifiers": {"count": 2, "patience_s": 3.0},
        "faults": [{"what": "link", "effect": "drop", "share": 0.05}],
    },
    "arrivals": {
        "workload": {
            "requests": 12, "prompt_tokens": 12, "new_tokens": 18, "arrivals": {"process": "poisson", "per_s": 1.0}
        },
    },
}  # fmt: skip
EXAMPLES: dict[str, list[Any]] = {  # keys whose type alone gives no relevant value
    "drafters.device": ["", "host"],
    "verifiers.device": ["", "host"],
    "drafters.tiers": [[{"first": 1, "step": {"base_s": 0.7}}]],
    "verifiers.tiers": [[{"first": 1, "step": {"base_s": 0.7}}], [{"first": 1, "link": {"latency_s": 0.3}}]],
    "drafters.order.limits_per_s": [[0.01]],
    "drafters.route.service_s": [[0.1, 9.0]],
    "drafters.route.prefill_s": [[9.0]],
    "drafters.route.tokens_per_round": [[1.0, 9.0]],
    "drafters.admit": [{"policy": "at-most", "sessions": 1}, {"policy": "within-memory", "kv_tokens": 40}],
    "drafters.order": [{"policy": "weighted", "weights": [1, 9]}, {"policy": "deadline", "goals_s": [9, 1]}],
    "faults": [[], [{"what": "kill", "node": "drafter", "at_s": 5.0, "for_s": 9.0}]],
    "drafters.warm_up": [{"policy": "after-idle", "idle_gap_s": 0.01, "tokens": 2}],
}

# Why another value changes nothing in the simulation, and in which corners; () is all.
REAL = "for the engine only; the simulator has no models or texts"
BASELINE = "about drafters, which the baseline does not have"
ONE_DRAFTER = "all routes lead to the one drafter"
ONE_TARGET = "there is one target to order"
ONE_SESSION = "each target has one session, so steps have one member"
AT_ONCE = "all requests begin at once, so that no prompt waits while others decode"
UNSHARED = "texts share nothing, and no request is preempted"
ALIKE = "requests are equal, and arrivals are not drawn"
LISTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "name": (REAL, ()),
    "precision": (REAL, ()),
    "drafters.model": (REAL, ()),
    "drafters.kind": (REAL, ()),
    "verifiers.model": (REAL, ()),
    "verifiers.kind": (REAL, ()),
    "verifiers.rule": (REAL, ()),
    "workload.prompts": (REAL, ()),
    "workload.seed": (ALIKE, tuple(name for name in CORNERS if name not in ("aligned", "arrivals"))),
    "workload.temperature": (REAL, ()),
    "workload.top_k": (REAL, ()),
    "workload.top_p": (REAL, ()),
    "verifiers.tiers": (BASELINE, ("no drafter",)),
    "drafters.route": (ONE_DRAFTER, ("star", "one session each", "shared", "arrivals", "ahead", "faulty")),
    "drafters.order": (ONE_TARGET, ("barrier",)),
    "verifiers.max_num_seqs": (ONE_SESSION, ("one session each",)),
    "verifiers.prefix_cache": (UNSHARED, ()),
    "drafters.prefix_cache": (UNSHARED, ("ahead", "barrier")),
    "verifiers.prefill_first": (AT_ONCE, tuple(name for name in CORNERS if name not in ("aligned", "arrivals"))),
}
WITHOUT_A_DRAFTER = (
    "drafters.depth", "drafters.shape", "drafters.shape.kind", "acceptance", "acceptance.beta", "link",
    "drafters.place", "verifiers.verify",
)  # fmt: skip


def corner(name: str) -> Scenario:
    return make_scenario(COMMON | CORNERS[name] | {"name": "corner"})


def reason_of(key: str, name: str) -> str:
    if name == "no drafter" and key in WITHOUT_A_DRAFTER:
        return BASELINE
    reason, corners = LISTED.get(key, ("", ()))
    return reason if not corners or name in corners else ""


def outputs(scenario: Scenario) -> Iterator[str]:
    """Yield the rows, the metrics and the prediction of a scenario."""
    run = simulate(scenario)
    yield run.digest()
    yield repr(measure(run))
    try:
        yield repr(predict(scenario))
    except InputError as error:
        yield str(error)


def outcome_of(scenario: Scenario, before: list[str], key: str, values: list[Any]) -> str:
    """Return "changes" if one value changes an output, "refused" if all are refused, else "nothing".

    A key of the engine must change the resolved fleet.
    """
    outcome = "refused"
    for value in values:
        try:
            changed = change_scenario(scenario, {key: value})
            if changed == scenario:
                continue
            if any(now != then for now, then in zip(outputs(changed), before, strict=True)):
                return "changes"
        except InputError:
            continue
        outcome = "nothing"
        if LISTED.get(key, ("", ()))[0] == REAL:
            assert resolve(changed) != resolve(scenario), f"{key} does not reach the engine"
    return outcome


@pytest.mark.parametrize("name", ["star", *(slow(name) for name in CORNERS if name != "star")])
def test_no_key_is_silently_ignored(name: str) -> None:
    scenario = corner(name)
    before, silent = list(outputs(scenario)), []
    for key, kind in keys_below(scenario):
        if key.partition(".")[0] == "profile":
            continue  # a profile describes a machine
        outcome = outcome_of(scenario, before, key, EXAMPLES.get(key) or list(values_of(kind)))
        if (outcome == "nothing") and not reason_of(key, name):
            silent.append(key)
    assert silent == []


def test_listed_keys_exist_and_are_few() -> None:
    keys = {key for name in CORNERS for key, _ in keys_below(corner(name))}
    assert {*LISTED, *WITHOUT_A_DRAFTER} <= keys
    assert len(LISTED) + len(WITHOUT_A_DRAFTER) < len(keys) / 2
