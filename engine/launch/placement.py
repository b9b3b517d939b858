"""The devices of this host: which GPU each station's process gets, and which device can be measured.

Stations that share a device share a GPU. Each other station gets the next GPU, drafters first. If there are too few,
they start again at the first one, and `crowding` says so.
"""

import os
from collections.abc import Callable, Mapping, Sequence

import torch

from specfleet.engine.node.power import Meter, find_meter, missing_counters
from specfleet.fleet.scenario.facts import crowds
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolved import Fleet

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none on a host without."""
    count = torch.cuda.device_count()
    named = [gpu.strip() for gpu in environment.get(VISIBLE, "").split(",") if gpu.strip()]
    return named[:count] if named else [str(number) for number in range(count)]


def devices_of(fleet: Fleet) -> dict[str, str]:
    """Return the device of each station that runs a model: the name of a shared one, or the station's own."""
    drafters, verifiers = fleet.drafters, fleet.verifiers
    drafting = range(drafters.stations if drafters.kind != "replayed" else 0)
    verifying = range(verifiers.count if verifiers.kind == "real" else 0)
    of_drafters = {fleet.drafter_name(number): drafters.device for number in drafting}
    of_targets = {verifier_name(number): verifiers.device for number in verifying}
    return {name: device or name for name, device in (of_drafters | of_targets).items()}


def gpus_of(fleet: Fleet, gpus: Sequence[str]) -> dict[str, str]:
    """Return the GPU of each station that runs a model, by the station's name; empty if there is no choice."""
    if len(gpus) < 2:
        return {}
    devices = devices_of(fleet)
    numbers = {device: number for number, device in enumerate(dict.fromkeys(devices.values()))}
    return {name: gpus[numbers[device] % len(gpus)] for name, device in devices.items()}


def crowding(fleet: Fleet) -> str | None:
    """Return a warning if a scenario has more devices than this host has GPUs, or more models than it has cores."""
    gpus, cores = len(visible_gpus()), os.cpu_count() or 1
    if gpus:
        devices = len(set(devices_of(fleet).values()))
        if devices <= gpus:
            return None
        few = f"{gpus} GPU" + "s" * (gpus > 1)
        return f"{devices} devices of the scenario share {few}; its simulation will be too fast"
    if not crowds(fleet, cores):
        return None
    return (
        f"{fleet.models} models run on {cores} cores, while the scenario gives each a device of its own; its "
        "simulation will be too fast. Name the device that they share, as the scenario that `specfleet calibrate` "
        'writes does: [devices.host] sharing = "turns" or "contended".'
    )


def has_meter(fleet: Fleet, report: Callable[[str], None]) -> bool:
    """Return whether a device of the fleet can be measured; call `report` with what cannot, and missing counters."""
    if not devices_of(fleet):
        report("replayed stations use no device: energy was not measured")
        return False
    gpus = dict.fromkeys(gpus_of(fleet, visible_gpus()).values()) or ("",)
    meters = [measured_here(report, os.environ | ({VISIBLE: gpu} if gpu else {})) for gpu in gpus]
    return any(meter is not None for meter in meters)


def measured_here(report: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> Meter | None:
    """Return the meter of the device that a process with this environment uses; `report` as in `has_meter`."""
    if not torch.cuda.is_available():
        report("models run on the processor, which is not sampled: energy was not measured")
        return None
    meter, reason = find_meter(environment=environment)
    if line := reason if meter is None else missing_counters(meter):
        report(line)
    return meter
