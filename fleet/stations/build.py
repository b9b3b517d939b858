"""From a scenario to its stations: the one place that decides which stations exist and with which policies."""

import numpy as np

from fleet.errors import InputError
from fleet.policies.admit import Admission, WithinMemory
from fleet.policies.allocate import Fixed
from fleet.policies.route import Affinity
from fleet.scenario.room import longest_row
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import Request
from fleet.stations.batch import BatchStation
from fleet.stations.drafter import DrafterStation
from fleet.stations.messages import Join
from fleet.stations.router import RouterStation
from fleet.stations.station import Station
from fleet.stations.verifier import VerifierStation

DRAFTER = "drafter"
BATCH = "batch"
ROUTER = "router"


def drafter_name(scenario: Scenario, drafter: int) -> str:
    """Name of the station of drafter number `drafter` (from 0); an only one needs no number. All begin with DRAFTER."""
    return DRAFTER if scenario.drafters.count == 1 else f"{DRAFTER}.{drafter + 1}"


def verifier_name(target: int) -> str:
    """Name of the station of target number `target` (from 0)."""
    return f"verifier.{target + 1}"


def drafter_station(scenario: Scenario, drafter: int = 0) -> DrafterStation:
    """Build a drafter."""
    drafters = scenario.drafters
    return DrafterStation(
        drafter_name(scenario, drafter), drafters.allocate or Fixed(drafters.depth), drafters.order,
        admission_of(scenario),
        drafters.warm_up,
        drafters.group, drafters.overlap, drafters.move, drafter if is_routed(scenario) else -1, drafters.limits_per_s,
        drafters.cache_tokens, scenario.verifiers.count,
    )  # fmt: skip


def admission_of(scenario: Scenario) -> Admission:
    """Return the drafter's rule of admission; InputError if it counts bytes that nobody told."""
    admit, memory = scenario.drafters.admit, scenario.memory
    if not isinstance(admit, WithinMemory) or admit.is_settled:
        return admit
    if memory is None:
        raise InputError(
            f"scenario {scenario.name!r}: drafters.admit = 'within-memory' needs cache_bytes and row_bytes, or a table "
            "[memory]; the engine knows them from its model and its device"
        )
    drafter = memory.drafter
    return admit.settled(
        memory.device_bytes - drafter.weights_bytes, drafter.kv_bytes_per_token * longest_row(scenario)
    )


def is_routed(scenario: Scenario) -> bool:
    """Whether sessions may move between drafters, so that a router decides on each round."""
    return scenario.drafters.count > 1 and not isinstance(scenario.drafters.route, Affinity)


def router_station(scenario: Scenario) -> RouterStation:
    """Build the router in front of several drafters."""
    return RouterStation(ROUTER, scenario.drafters.count, scenario.drafters.route)


def verifier_station(scenario: Scenario, target: int) -> VerifierStation:
    """Build a target; its sessions are those that `target_of` sends to it."""
    verifiers = scenario.verifiers
    return VerifierStation(
        verifier_name(target),
        speculates=scenario.drafters.count > 0,
        group=verifiers.group,
        overlap=scenario.drafters.overlap,
        allocation=verifiers.allocate,
        rng=np.random.default_rng([scenario.seed, 2, target]),
    )


def batch_station(scenario: Scenario) -> BatchStation:
    """Build the one station of a co-located batch."""
    assert scenario.batch is not None
    allocation = scenario.batch.allocate or Fixed(scenario.drafters.depth)
    return BatchStation(BATCH, scenario.batch.rule, allocation, np.random.default_rng([scenario.seed, 2]))


def target_of(scenario: Scenario, tag: int) -> int:
    """Number of the target that owns a stream: streams are dealt to the targets in turn."""
    return tag % scenario.verifiers.count


def drafter_of(scenario: Scenario, tag: int) -> int:
    """Number of the drafter that serves a stream: dealt in turn, too."""
    return tag % max(scenario.drafters.count, 1)


def stations(scenario: Scenario) -> dict[str, Station]:
    """Build every station of the scenario, fresh, by name."""
    if scenario.batch is not None:
        return {BATCH: batch_station(scenario)}
    fleet: list[Station] = [verifier_station(scenario, target) for target in range(scenario.verifiers.count)]
    fleet += [drafter_station(scenario, drafter) for drafter in range(scenario.drafters.count)]
    if is_routed(scenario):
        fleet.append(router_station(scenario))
    return {station.name: station for station in fleet}


def join_of(scenario: Scenario, tag: int, request: Request) -> Join:
    """Return the event that opens `request` at its target's station."""
    priorities, target = scenario.verifiers.priorities, tag % scenario.verifiers.count
    priority = priorities[target] if target < len(priorities) else 0
    return Join(tag, request.number, request.prompt_tokens, request.new_tokens, priority)
