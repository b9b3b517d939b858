"""Which GPU of this host each station's process gets.

Stations that share a device share a GPU. All others have devices of their own, so each gets the next GPU, drafters
first; where there are fewer, they begin again with the first one, and who starts the run is told (`serve.crowding`).
"""

import os
from collections.abc import Mapping, Sequence

import torch

from fleet.scenario.names import verifier_name
from fleet.scenario.settled import Fleet

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none on a host without."""
    count = torch.cuda.device_count()
    named = [gpu.strip() for gpu in environment.get(VISIBLE, "").split(",") if gpu.strip()]
    return named[:count] if named else [str(number) for number in range(count)]


def devices_of(fleet: Fleet) -> dict[str, str]:
    """Return the device of each station that runs a model: the name of a shared one, or the station's own."""
    drafters, verifiers = fleet.drafters, fleet.verifiers
    drafting = range(drafters.count if drafters.kind != "replayed" else 0)
    verifying = range(verifiers.count if verifiers.kind == "real" else 0)
    of_drafters = {fleet.drafter_name(number): drafters.device for number in drafting}
    of_targets = {verifier_name(number): verifiers.device for number in verifying}
    return {name: device or name for name, device in (of_drafters | of_targets).items()}


def gpus_of(fleet: Fleet, gpus: Sequence[str]) -> dict[str, str]:
    """Return the GPU of each station that runs a model, by the station's name; nothing to choose: nothing."""
    if len(gpus) < 2:
        return {}
    devices = devices_of(fleet)
    numbers = {device: number for number, device in enumerate(dict.fromkeys(devices.values()))}
    return {name: gpus[numbers[device] % len(gpus)] for name, device in devices.items()}
