"""What a run on this host has left: records, texts, and what was measured of its devices."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import torch

from engine.runtime.placement import gpus_of, visible_gpus
from engine.runtime.power import Device, meter_of
from engine.runtime.process import NodeProcess
from fleet.chance.token import Token
from fleet.records.power import curves_of
from fleet.records.run import Run
from fleet.records.samples import PowerSample
from fleet.scenario.settled import Fleet


class Served(msgspec.Struct, frozen=True):
    """A run on the engine, and the new tokens of each request that a real target decoded.

    `signals`: of each request's drafted tokens, where a batch recorded them. `samples`: of a device's power.
    """

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]] = {}
    samples: tuple[PowerSample, ...] = ()


def measured_device(fleet: Fleet, report: Callable[[str], None]) -> Device | Literal[""]:
    """Return the device whose power can be measured here; `report` is told in one line why none can, if none can."""
    if fleet.drafters.count and fleet.drafters.kind == "replayed":
        report("replayed drafters use no device: energy was not measured")
        return ""
    if len(set(gpus_of(fleet, visible_gpus()).values())) > 1:
        report("models run on several GPUs, and one process would measure one of them: energy was not measured")
        return ""
    device: Device = "gpu" if torch.cuda.is_available() else "cpu"
    meter, reason = meter_of(device)
    if meter is None:
        report(reason)
    return "" if meter is None else device


def measured(served: Served, nodes: Sequence[NodeProcess]) -> Served:
    """Add what the nodes have measured of their devices."""
    samples = tuple(sample for node in nodes for sample in node.samples)
    if not samples:
        return served
    header = msgspec.structs.replace(served.run.header, energy=curves_of(samples))
    run = msgspec.structs.replace(served.run, header=header)
    return msgspec.structs.replace(served, run=run, samples=samples)
