"""From a scenario to its stations: the one place that decides which stations exist and with which policies."""

from specfleet.policies.allocate import Fixed
from specfleet.scenario import Scenario
from specfleet.station import DrafterStation, Station, VerifierStation

DRAFTER = "drafter"


def verifier_name(target: int) -> str:
    """Name of the station of target number `target` (from 0)."""
    return f"verifier.{target + 1}"


def drafter_station(scenario: Scenario) -> DrafterStation:
    """Build the star's hub."""
    drafters = scenario.drafters
    return DrafterStation(DRAFTER, Fixed(drafters.depth), drafters.order, drafters.admit, drafters.warm_up)


def verifier_station(scenario: Scenario, target: int) -> VerifierStation:
    """Build one of the star's rays; its only session carries the target's number as tag."""
    return VerifierStation(verifier_name(target), speculates=scenario.drafters.count > 0)


def stations(scenario: Scenario) -> dict[str, Station]:
    """Build every station of the scenario, fresh, by name."""
    fleet: list[Station] = [verifier_station(scenario, target) for target in range(scenario.verifiers.count)]
    if scenario.drafters.count:
        fleet.append(drafter_station(scenario))
    return {station.name: station for station in fleet}
