"""What a run on this host has left: records, texts, and what was measured of its devices."""

from collections.abc import Sequence

import msgspec

from engine.runtime.process import NodeProcess
from fleet.chance.token import Token
from fleet.records.power import curves_of
from fleet.records.run import Run
from fleet.records.samples import PowerSample


class Served(msgspec.Struct, frozen=True):
    """A run on the engine, and the new tokens of each request that a real target decoded.

    `signals`: of each request's drafted tokens, where a batch recorded them. `samples`: of a device's power.
    """

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]] = {}
    samples: tuple[PowerSample, ...] = ()


def measured(served: Served, nodes: Sequence[NodeProcess]) -> Served:
    """Add what the nodes have measured of their devices."""
    samples = tuple(sample for node in nodes for sample in node.samples)
    if not samples:
        return served
    header = msgspec.structs.replace(served.run.header, energy=curves_of(samples))
    run = msgspec.structs.replace(served.run, header=header)
    return msgspec.structs.replace(served, run=run, samples=samples)
