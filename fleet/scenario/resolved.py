"""A resolved fleet: everything that follows from a scenario and its profile (`resolve.py`).

Both worlds, the equations, calibration and the replay test build from it and never read the scenario again. Numbers
of drafters, targets and streams count from 0. Without a profile, its values are missing: the engine needs no times,
and `Fleet`'s methods raise an error that names the missing key.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from specfleet.fleet.acceptance.models import AcceptanceModel
from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.admit import Admission, Everyone
from specfleet.fleet.policies.aligned import AlignedRule
from specfleet.fleet.policies.allocate import Needs
from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.group import DraftGroup, One
from specfleet.fleet.policies.order import Fifo, Order
from specfleet.fleet.policies.overlap import InTurn, Overlap
from specfleet.fleet.policies.route import Routing
from specfleet.fleet.policies.shapes import CHAIN, Shape
from specfleet.fleet.policies.warm_up import NoWarmUp, WarmUp
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.faults import Fault
from specfleet.fleet.scenario.lengths import Lengths
from specfleet.fleet.scenario.names import World, drafter_name
from specfleet.fleet.scenario.prefill import Prefill
from specfleet.fleet.scenario.scenario import (
    FINDING,
    Acceptance,
    DraftKind,
    FindFirst,
    Late,
    LengthRule,
    Measure,
    Place,
    Sharing,
    TargetKind,
    VerificationRule,
    Workload,
)
from specfleet.fleet.scenario.slo import Slo
from specfleet.fleet.times.effects import Power
from specfleet.fleet.times.labels import Basis
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step_time import LinkTime


class Patience(msgspec.Struct, frozen=True):
    """A target's timeouts.

    - `patience_s`: timeout of a draft; 0 for none.
    - `rejoin_s`: time of decoding alone before the next retry.
    """

    patience_s: float = 0.0
    rejoin_s: float = 1.0


T = TypeVar("T")


Timed = TypeVar("Timed", DrafterTimes, VerifierTimes)

Models = tuple[tuple[int, str], ...]
ONE_MODEL: Models = ((0, "demo"),)


class ResolvedDrafters(msgspec.Struct, frozen=True):
    """The drafting side: `count` drafters for `targets` targets. Keys of the same name are the scenario's.

    - `route`: None if streams stay with their drafter, without a router.
    - `positions`: positions that the models have learned; 0 for no limit.
    - `profile`: name and basis of this side's own profile.
    - `models`: first number and model of each range of stations.
    """

    count: int = 1
    targets: int = 0
    depth: int = 5
    shape: Shape = CHAIN
    place: Place = "own"
    kind: DraftKind = "model"
    model: str = "demo"
    device: str = ""
    order: Order = Fifo()
    admit: Admission = Everyone()
    warm_up: WarmUp = NoWarmUp()
    group: DraftGroup = One()
    overlap: Overlap = InTurn()
    route: Routing | None = None
    positions: int = 0
    prefix_cache: bool = False
    lease_s: float = 0.0
    profile: str = ""
    models: Models = ONE_MODEL
    times: tuple[DrafterTimes, ...] = ()
    first: FindFirst | None = None

    @property
    def finds(self) -> bool:
        """Whether drafts are found in texts, without a model, and in some rounds alone."""
        return self.kind in FINDING

    @property
    def stations(self) -> int:
        """Number of drafters that are stations of their own."""
        return 0 if self.place == "target" else self.count


class LocalDrafts(msgspec.Struct, frozen=True):
    """Drafts on a target's device: `depth` tokens; `positions` as above.

    - `reads_prompts`: whether the drafter has a KV cache, and reads all that its target does.
    - `again`: blocks at the end of a cached beginning that are computed again: 1 for heads, which need the state
      before the next token.
    """

    depth: int
    positions: int = 0
    reads_prompts: bool = True
    again: int = 0


class ResolvedVerifiers(msgspec.Struct, frozen=True):
    """The verifying side: `count` targets. Keys of the same name are the scenario's.

    - `speculates`: whether there are drafters for them.
    - `drafts`: how each drafts on its own device; None with drafters elsewhere.
    - `batching`: which requests share a step. `kv_blocks`: of each range of equal targets, where they differ.
    - `drafters`: number of drafters that streams are dealt to in turn; 1 behind a router.
    - `profile`: name and basis of this side's own profile.
    - `models`: first number and model of each range of stations.
    - `kv_token_bytes`: that a prefill server sends of a token.
    """

    count: int = 1
    kind: TargetKind = "real"
    model: str = "demo"
    device: str = ""
    rule: VerificationRule = "rejection"
    speculates: bool = True
    drafts: LocalDrafts | None = None
    priorities: tuple[int, ...] = ()
    batching: ContinuousBatching = ContinuousBatching(256, 2048)
    prefix_cache: bool = False
    prefill: Prefill | None = None
    kv_token_bytes: float = 0.0
    late: Late = "skip"
    aligned: AlignedRule | None = None
    overlap: Overlap = InTurn()
    allocate: LengthRule | None = None
    patience: Patience = Patience()
    drafters: int = 1
    profile: str = ""
    models: Models = ONE_MODEL
    times: tuple[VerifierTimes, ...] = ()
    kv_blocks: tuple[int, ...] = ()

    def batching_of(self, target: int) -> ContinuousBatching:
        """Return which requests share a step of a target."""
        if not self.kv_blocks:
            return self.batching
        place = sum(entry.first <= target for entry in self.times) - 1
        return msgspec.structs.replace(self.batching, kv_blocks=self.kv_blocks[place])

    @property
    def servers(self) -> int:
        """Number of targets, prefill servers included."""
        return self.count + (self.prefill.count if self.prefill else 0)

    @property
    def outruns_drafts(self) -> bool:
        """Whether a text may go on before its draft has arrived: a late draft is not awaited, or a cache is lost."""
        return self.late == "decode" or self.batching.kv_blocks > 0

    def priority(self, target: int) -> int:
        """Priority of a target's requests."""
        return self.priorities[target] if target < len(self.priorities) else 0


class ResolvedDevice(msgspec.Struct, frozen=True):
    """A device of several stations; a single station has its own device.

    - `contention[k-1]`: slowdown of a step while k stations are active.
    """

    sharing: Sharing
    contention: tuple[float, ...] = (1.0,)


class ResolvedLink(msgspec.Struct, frozen=True):
    """One direction between a drafter and a target.

    - `held`: whether the link is stated and not measured, so that a run on one host delays each message by it.
    """

    time: LinkTime
    held: bool = False


class Room(msgspec.Struct, frozen=True):
    """Cache places, in tokens: the longest draft, the overshoot of a last round, the longest row."""

    longest_draft: int
    overshoot: int
    longest_row: int


class Fleet(msgspec.Struct, frozen=True):
    """One fleet, ready to be built in either world.

    - `links[i][j]`: between drafters and targets from the i-th and the j-th number of `link_ranges` on; empty if
      unknown.
    - `streams`: concurrent streams in a closed loop; 0 if every request is its own stream.
    - `needs`: signals of draft tokens that the length rule uses.
    - `vocabulary`, `hidden`: sizes of the content beside messages.
    - `basis`: kind of the step times. `faults`: the fault script.
    - `one_clock`: whether all nodes of a run read the same host's clock.
    - `slo`, `cost`: goals of requests, and prices of devices.
    - `request_s`: time of a request outside its target's steps.
    - `power`: of the drafters' devices, and of the targets' without a `target_power`.
    """

    name: str
    seed: int
    precision: str
    drafters: ResolvedDrafters
    verifiers: ResolvedVerifiers
    links: tuple[tuple[ResolvedLink, ...], ...]
    streams: int
    workload: Workload
    lengths: Lengths
    measure: Measure
    acceptance: Acceptance | None
    needs: Needs
    room: Room
    vocabulary: int = 0
    hidden: int = 0
    request_s: float = 0.0
    power: Power | None = None
    profile: str = ""
    profile_digest: str = ""
    basis: Basis | Literal[""] = ""
    devices: dict[str, ResolvedDevice] = {}
    faults: tuple[Fault, ...] = ()
    link_ranges: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), (0,))
    one_clock: bool = True
    slo: Slo | None = None
    cost: Cost | None = None
    target_power: Power | None = None

    @property
    def routed(self) -> bool:
        """Whether sessions may move between drafters, so that a router decides each round."""
        return self.drafters.route is not None

    @property
    def models(self) -> int:
        """The number of concurrent models, each in its own process."""
        drafting = 0 if self.drafters.kind == "replayed" else self.drafters.stations
        return drafting + (self.verifiers.count if self.verifiers.kind == "real" else 0)

    @property
    def in_turn(self) -> bool:
        """Whether a drafter waits while its targets verify."""
        return isinstance(self.drafters.overlap, InTurn)

    @property
    def replayed(self) -> tuple[str, ...]:
        """Sides that are replayed in the real world, without a model: drafters, targets."""
        drafters = self.drafters.kind == "replayed" and self.drafters.count > 0
        targets = self.verifiers.kind == "replayed"
        return ("drafters",) * drafters + ("targets",) * targets

    def basis_in(self, world: World) -> str:
        """Return what the step times of a run in that world rest on: those of models are measured."""
        return "measured" if world == "engine" and not self.replayed else self.basis

    def drafter_name(self, drafter: int) -> str:
        """Return the name of a drafter's station."""
        return drafter_name(drafter, self.drafters.count)

    @property
    def drafter_names(self) -> list[str]:
        """Names of all drafters' stations, in order."""
        return [self.drafter_name(drafter) for drafter in range(self.drafters.stations)]

    def target_of(self, tag: int) -> int:
        """Return the target of a stream: streams are dealt to the targets in turn."""
        return tag % self.verifiers.count

    def drafter_of(self, tag: int) -> int:
        """Return the drafter of a stream: dealt in turn, too."""
        return tag % max(self.drafters.count, 1)

    def drafter_model(self, drafter: int) -> str:
        """Return the model of a drafter."""
        return _model(self.drafters.models, drafter)

    def target_model(self, target: int) -> str:
        """Return the model of a target."""
        return _model(self.verifiers.models, target)

    def drafter_times(self, drafter: int) -> DrafterTimes:
        """Return the times of a drafter; InputError if the scenario has no profile."""
        return self._known(_entry(self.drafters.times, drafter), "drafters.profile")

    def verifier_times(self, target: int) -> VerifierTimes:
        """Return the times of a target; InputError if neither scenario nor profile has them."""
        return self._known(_entry(self.verifiers.times, target), "verifiers.profile")

    def link(self, target: int, drafter: int = 0) -> ResolvedLink:
        """Return the link between a target and a drafter; InputError if neither scenario nor profile has it."""
        if not self.links and self.drafters.times and self.verifiers.times:
            raise InputError(
                f"scenario {self.name!r}: link is missing; neither drafters.profile nor verifiers.profile measured one "
                "between their machines: give [link], latency_s = 0 for none"
            )
        links = self._known(self.links or None)
        drafters, targets = self.link_ranges
        return links[bisect_right(drafters, drafter) - 1][bisect_right(targets, target) - 1]

    def acceptance_model(self) -> Acceptance:
        """Return the acceptance model; InputError if neither scenario nor profile has one."""
        if self.acceptance is None:
            self._known(self.profile_digest or None)
            raise InputError(f"scenario {self.name!r}: acceptance is missing, and its profile has none either")
        return self.acceptance

    def length_model(self) -> AcceptanceModel:
        """Return the acceptance model of whole rounds; InputError for a token-level model, which no equation covers."""
        model = self.acceptance_model()
        if isinstance(model, TokenModel):
            raise InputError(
                f"scenario {self.name!r}: acceptance.model = {model.__struct_config__.tag!r} knows single tokens, "
                "and the equations lengths of rounds; simulate it"
            )
        return model

    def _known(self, value: T | None, of_side: str = "") -> T:
        if value is None:
            mixed = of_side and (self.drafters.profile or self.verifiers.profile)
            missing = f"{of_side} is missing, and so is profile" if mixed else "profile is missing"
            raise InputError(f"scenario {self.name!r}: {missing}; name a shipped profile or a file: --set profile=FILE")
        return value


def _entry(times: Sequence[Timed], number: int) -> Timed | None:
    return next((entry for entry in reversed(times) if entry.first <= number), None)


def _model(models: Models, number: int) -> str:
    return next(model for first, model in reversed(models) if first <= number)
