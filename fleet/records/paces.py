"""How fast the hosts of a measured run were, read from its records."""

from fleet.records.run import Run
from fleet.times.pace import Pace, pace_of


def paces_of(run: Run, reference_s: float) -> dict[str, Pace]:
    """Return the pace of each station that took controls, by the station's name; none if `reference_s` is 0.

    Stations that contend for a device are left out: their controls feel each other, which the profile's contention
    already holds.
    """
    fleet = run.header.fleet
    contended = {name for name, device in fleet.devices.items() if device.sharing == "contended"}
    if reference_s <= 0 or contended & {fleet.drafters.device, fleet.verifiers.device}:
        return {}
    rows = run.frame()
    rows = rows[rows.control_s > 0]
    return {
        str(station): pace_of(group.time_s.to_numpy(), group.control_s.to_numpy(), reference_s)
        for station, group in rows.groupby("station")
    }
