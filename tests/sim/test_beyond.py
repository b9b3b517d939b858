"""Beyond the papers: a batched drafter, caches under pressure, packing."""

from typing import Any

import msgspec
import pytest

from fleet.records.metrics.measure import measure
from fleet.scenario.memory import DeviceMemory, ModelMemory
from fleet.scenario.reading import change_scenario, make_scenario
from fleet.scenario.scenario import Scenario
from sim.analytic import throughput
from sim.packing import colocated, shared
from sim.predict import predict
from sim.run import simulate
from tests.helpers.quickly import simulated
from tests.helpers.stars import cache_of


def star(N: int, beta: float = 0.7, **drafters: Any) -> Scenario:
    return make_scenario(
        {
            "name": "beyond",
            "profile": {
                "name": "p",
                "draft": {"base_s": 0.5, "per_token_s": 0.3, "per_row_s": 0.1},
                "verify": {"base_s": 6.0},
                "draft_prefill": {"per_token_s": 0.2},
            },
            "acceptance": {"model": "geometric", "beta": beta},
            "drafters": {"depth": 4} | drafters,
            "verifiers": {"count": N},
            "workload": {"requests": 2 * N, "prompt_tokens": 10, "new_tokens": 600},
        }
    )


def limited(cache_tokens: int, **drafters: Any) -> Scenario:
    """Three targets and a drafter with a cache of so many tokens."""
    return change_scenario(star(3, **drafters), {"memory": cache_of(cache_tokens)})


def tokens_per_s(scenario: Scenario) -> float:
    return measure(simulated(scenario))["throughput"].value


# A batched drafter.


@pytest.mark.slow
def test_a_batched_drafter_is_faster_under_load() -> None:
    alone, batched = (tokens_per_s(star(12, group=group)) for group in ("one", {"policy": "batch", "most": 8}))
    assert batched > 1.5 * alone


def test_a_batched_drafter_changes_nothing_for_one_target() -> None:
    alone, batched = (simulate(star(1, group=group)).digest() for group in ("one", {"policy": "batch", "most": 8}))
    assert alone == batched


# Memory.


def test_sessions_beyond_the_cache_are_prefilled_again() -> None:
    def prefills(scenario: Scenario) -> int:
        frame = simulate(scenario).frame()
        return int(((frame.station == "drafter") & (frame.event == "done") & (frame.kind == "prefill")).sum())

    assert prefills(star(3)) == prefills(limited(10_000)) == 6
    assert prefills(limited(1000)) > 50


GB = 10**9
TARGET, DRAFTER = ModelMemory(16 * GB, 131_072), ModelMemory(3 * GB, 32_768)


def test_what_fits_on_a_device() -> None:
    def targets(pack: Any, device_bytes: int, target: ModelMemory = TARGET) -> int:
        """Targets of 2000 tokens: 0.262 GB of cache each, 0.066 GB at the drafter."""
        memory = DeviceMemory(1 if pack is colocated else 2, device_bytes, target, DRAFTER)
        return pack(memory, 2000, 0.01, 0.03, *([3.0] if pack is colocated else [0.0, 3.0])).targets

    assert targets(colocated, 80 * GB) == targets(shared, 80 * GB) == targets(shared, 66 * GB) == 4
    assert targets(colocated, 66 * GB) == 3
    small = ModelMemory(0, 1)  # the drafter's cache is the limit
    assert (targets(shared, 4 * GB, small), targets(shared, 2 * GB, small)) == (15, 0)


def test_a_shared_drafter_leaves_room_for_targets() -> None:
    memory = DeviceMemory(8, 24 * GB, TARGET, ModelMemory(8 * GB, 32_768))
    beside, elsewhere = colocated(memory, 2000, 0.010, 0.030, 3.0), shared(memory, 2000, 0.010, 0.030, 0.004, 3.0)
    assert (beside.targets, elsewhere.targets) == (0, 7)
    assert elsewhere.tokens_per_s == pytest.approx(throughput(7, 0.010, 0.034, 3.0))


def test_a_fleet_without_room_does_nothing() -> None:
    memory = DeviceMemory(2, 4 * GB, TARGET, DRAFTER)
    assert shared(memory, 2000, 0.01, 0.03, 0.0, 3.0).tokens_per_s == 0


def test_predictions_count_the_targets_that_fit() -> None:
    content = {"memory": DeviceMemory(8, 24 * GB, TARGET, DRAFTER)}
    prediction = predict(msgspec.structs.replace(star(4), **content))
    assert prediction.packings is not None
    assert (prediction.packings.colocated.targets, prediction.packings.shared.targets) == (8, 7)
    assert predict(star(4)).packings is None


def test_predicted_communication_is_both_one_way_delays() -> None:
    """The latency is 0.25 s: Z = 0.5 s + t_v for each target on a device."""
    scenario = star(4)
    assert scenario.profile is not None
    content = msgspec.to_builtins(scenario)
    content["profile"]["link"] = {"latency_s": 0.25}
    content["memory"] = msgspec.to_builtins(DeviceMemory(3, 24 * GB, ModelMemory(8 * GB, 1), DRAFTER))
    prediction = predict(make_scenario(content))
    assert prediction.packings is not None
    targets = prediction.packings.shared.targets
    assert targets > 2
    tokens = sum(0.7**k for k in range(5))
    expected = throughput(targets, 0.5 + 0.3 * 4, 0.5 + -(-targets // 2) * 6.0, tokens)
    assert prediction.packings.shared.tokens_per_s == pytest.approx(expected)
