"""Fleets of real models on a network in memory: their steps take stated times, so that every run is the same."""

from typing import Any

from specfleet.engine.node.build import load_target, new_drafter, new_streams, new_target
from specfleet.engine.node.executors import DraftExecutor, VerifyExecutor
from specfleet.engine.node.pending import PendingDrafts
from specfleet.engine.node.prompts import prompts_of
from tests.helpers.toy_fleets import ToyFleet


class RealFleet(ToyFleet):
    """A fleet with the executors of the engine. `drafting`: those of its drafters."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prompts, self.model = prompts_of(self.fleet), load_target(self.fleet)
        self.drafting: list[DraftExecutor] = []

    def new_target(self) -> Any:
        """Return the executor of a target."""
        fleet, pending = self.fleet, PendingDrafts()
        target, streams = new_target(fleet, self.model), new_streams(fleet, self.prompts)
        return VerifyExecutor(target, streams, pending, fleet.drafters.kind == "eagle", in_turn=fleet.in_turn)

    def new_drafter(self, _drafter: int) -> Any:
        """Return the executor of a drafter."""
        drafter = new_drafter(self.fleet, self.model)
        self.state_numbers = getattr(drafter, "state_numbers", 0)
        self.drafting.append(DraftExecutor(drafter, new_streams(self.fleet), not self.fleet.in_turn))
        return self.drafting[-1]
