"""What to run: a scenario file (TOML) as frozen structs, the same for the simulated and the real world."""

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fleet.chance.acceptance import AcceptanceModel
from fleet.chance.tokens import TokenModel
from fleet.errors import InputError
from fleet.policies.adaedl import AdaEdl
from fleet.policies.admit import Admission, Everyone
from fleet.policies.allocate import Fixed, FixedShare, Heuristic, Needs, RandomShare
from fleet.policies.depth import AdaptiveDepth
from fleet.policies.dsde import Dsde
from fleet.policies.goodspeed import GoodSpeed
from fleet.policies.group import Group, One
from fleet.policies.order import Fifo, Order
from fleet.policies.overlap import InTurn, Overlap
from fleet.policies.ragged import BatchRule
from fleet.policies.route import Affinity, Route
from fleet.policies.shapes import CHAIN, Shape
from fleet.policies.svip import Svip
from fleet.policies.warm_up import NoWarmUp, WarmUp
from fleet.scenario.memory import DeviceMemory
from fleet.times.effects import Turns
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime, StepTime

Count = Annotated[int, Meta(ge=1)]
WholeNumber = Annotated[int, Meta(ge=0)]


GrantRule = Fixed | FixedShare | RandomShare | Heuristic | GoodSpeed | Dsde | AdaEdl | Svip
Acceptance = AcceptanceModel | TokenModel


class DrafterTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafters numbered `first` and above (from 1) differ: a slower device, a longer link."""

    first: Count
    draft: StepTime | None = None
    link: LinkTime | None = None


class Drafters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The drafting side. `count = 0` is plain autoregressive decoding.

    `depth`: levels of a draft, the speculation length of a chain; `shape`: a chain or a tree.
    `kind`: what drafts: a small model, an EAGLE head of the target, or prompt lookup, which needs no model.
    `model`: folder of a Hugging Face causal language model, or "demo" (real world only). `device`: name of a shared
    device in `[devices]`; empty for one of its own each. `group`: who shares a draft step. `overlap`: whether drafting
    goes on while a draft is verified. `route`: which of several drafters drafts a session's next round; `move`: how a
    session comes to another one; `view_delay_s`: how old what the router knows of them is. `limits_per_s`: rounds a
    second that targets 1, 2, ... may ask for, 0 for any number; the last one holds for the rest. `allocate`: how
    deep to draft, where that is not always `depth`. `cache_tokens`: tokens of context that a drafter's cache holds, 0
    for any number.
    """

    count: WholeNumber = 1
    depth: Count = 5
    shape: Shape = CHAIN
    kind: Literal["model", "eagle", "lookup"] = "model"
    model: str = "demo"
    device: str = ""
    order: Order = Fifo()
    admit: Admission = Everyone()
    warm_up: WarmUp = NoWarmUp()
    group: Group = One()
    overlap: Overlap = InTurn()
    route: Route = Affinity()
    move: Literal["prefill", "transfer", "shared"] = "prefill"
    view_delay_s: Annotated[float, Meta(ge=0)] = 0.0
    limits_per_s: tuple[Annotated[float, Meta(ge=0)], ...] = ()
    allocate: Fixed | AdaptiveDepth | None = None
    cache_tokens: WholeNumber = 0
    tiers: tuple[DrafterTier, ...] = ()


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Verifiers numbered `first` and above (from 1) differ: a slower device, a longer link."""

    first: Count
    verify: StepTime | None = None
    link: LinkTime | None = None


class Verifiers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verifying side: `count` targets.

    `kind`, in the real world: "real" runs the model; "replayed" compares drafts with a continuation decoded beforehand
    and waits for the time that `verify` states, standing for an accelerator of its own. `verify`, `prefill` and
    `decode` override the profile's step times. `priorities` are those of targets 1, 2, ... (0 for the rest). `group`:
    which sessions share a verification; `padded`: their drafts are filled up to the longest. `allocate`: the verifier
    grants the speculation lengths, by this rule; where it is missing, `drafters.depth` holds. `rule`: by which drafts
    are accepted (see `engine/rules.py`).
    """

    count: Count = 1
    kind: Literal["real", "replayed"] = "real"
    model: str = "demo"
    device: str = ""
    verify: StepTime | None = None
    prefill: StepTime | None = None
    decode: StepTime | None = None
    tiers: tuple[Tier, ...] = ()
    priorities: tuple[int, ...] = ()
    group: Group = One()
    padded: bool = False
    allocate: GrantRule | None = None
    rule: Literal["rejection", "without-replacement", "top-k", "match"] = "rejection"


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafter and target in one process on one device, over a batch of sessions.

    `rule`: which rows form a batch, and what their different lengths cost. `allocate`: their speculation lengths; where
    it is missing, `drafters.depth` holds. `padded`: a verification fills drafts up to the longest.
    """

    rule: BatchRule
    allocate: GrantRule | None = None
    padded: bool = True


Sharing = Literal["turns", "contended", "one-process"]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that hosts several stations.

    "turns": they exclude each other. "contended": they run at once and slow each other by the profile's factors.
    "one-process": they take turns in one process, and messages between them are function calls without a link.
    """

    sharing: Sharing = "turns"


class Between(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lengths spread evenly from `low` to `high` tokens, both included."""

    low: Count
    high: Count

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")


class Poisson(msgspec.Struct, frozen=True, tag="poisson", tag_field="process", forbid_unknown_fields=True):
    """Requests, or first turns of conversations, come by themselves at random, `per_s` a second on average."""

    per_s: Annotated[float, Meta(gt=0)]


class Trace(msgspec.Struct, frozen=True, tag="trace", tag_field="process", forbid_unknown_fields=True):
    """Requests come as in a CSV file with columns arrived_at (s), num_prefill_tokens and num_decode_tokens.

    `speed` above 1 plays it faster.
    """

    file: str
    speed: Annotated[float, Meta(gt=0)] = 1.0


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who decodes what. Closed loop: a stream's next request opens as soon as its last one is complete.

    `streams`: how many decode at a time, 0 for one a drafter or verifier, whichever are more; `requests` are dealt to
    them in turn. With `arrivals` requests come by themselves instead, each a stream of its own. `conversations`: a JSON
    Lines file with `turns` (Spec-Bench); a stream is then one conversation, whose context grows from turn to turn; four
    characters count as a token. `prompts`: "demo/evaluation", "demo/calibration", or a JSON Lines file
    with a field `prompt` (text) or `prompt_ids`; the real world decodes them, the simulated one needs their lengths.
    `temperature`, `top_k` (0: all) and `top_p` say how tokens are drawn.
    """

    requests: Count = 64
    streams: WholeNumber = 0
    prompts: str = "demo/evaluation"
    prompt_tokens: Count | Between = 192
    new_tokens: Count | Between = 96
    arrivals: Poisson | Trace | None = None
    conversations: str = ""
    temperature: Annotated[float, Meta(ge=0)] = 0.0
    top_k: WholeNumber = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a run counts: from `warm_up_share` of its length until the first target has nothing to do.

    `deadlines_s`: how soon a draft must be there after targets 1, 2, ... asked (the last one holds for the rest); the
    share of rounds in time is then a metric.
    """

    warm_up_share: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    batches: Annotated[int, Meta(ge=2)] = 20
    deadlines_s: tuple[Annotated[float, Meta(gt=0)], ...] = ()


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one fleet. `profile` names a shipped profile or a file, or holds the numbers themselves.

    `memory`: what devices and models hold; the analytic model then says how many targets fit.
    """

    name: str = "unnamed"
    seed: WholeNumber = 0
    profile: HardwareProfile | str = ""
    drafters: Drafters = Drafters()
    verifiers: Verifiers = Verifiers()
    batch: Batch | None = None
    devices: dict[str, Device] = {}
    link: LinkTime | None = None
    acceptance: Acceptance | None = None
    workload: Workload = Workload()
    measure: Measure = Measure()
    memory: DeviceMemory | None = None
    precision: Literal["float32", "float64", "bfloat16", "float16"] = "float32"

    def digest(self) -> str:
        """Fingerprint of the whole content, the profile's numbers included where they are inline."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def needs_of(scenario: Scenario) -> Needs:
    """Return what the scenario's length rule needs to know of draft tokens."""
    rule = scenario.batch.allocate if scenario.batch is not None else scenario.verifiers.allocate
    return "lengths" if rule is None else rule.needs


def profile_of(scenario: Scenario) -> HardwareProfile:
    """Return the scenario's profile, once read; InputError if it names none."""
    if isinstance(scenario.profile, str):
        raise InputError(f"scenario {scenario.name!r}: profile is missing; name a shipped profile or a profile file")
    return scenario.profile


def acceptance_of(scenario: Scenario) -> Acceptance:
    """Return the scenario's acceptance model, or else its profile's; InputError if neither has one."""
    acceptance = scenario.acceptance or profile_of(scenario).acceptance
    if acceptance is None:
        raise InputError(f"scenario {scenario.name!r}: acceptance is missing, and its profile has none either")
    return acceptance


def length_model_of(scenario: Scenario) -> AcceptanceModel:
    """Return the scenario's acceptance model; InputError if it is one of single tokens, which no equation knows."""
    model = acceptance_of(scenario)
    if isinstance(model, TokenModel):
        raise InputError(
            f"scenario {scenario.name!r}: acceptance.model = {model.__struct_config__.tag!r} knows single tokens, "
            "and the equations lengths of rounds; simulate it"
        )
    return model


def mean_tokens(length: int | Between) -> float:
    """Return the mean of a length."""
    return length if isinstance(length, int) else (length.low + length.high) / 2


def verify_time(scenario: Scenario, target: int) -> StepTime:
    """Return the verification time of target number `target` (from 0): its tier's, the scenario's or the profile's."""
    chosen = scenario.verifiers.verify or profile_of(scenario).verify
    for tier in scenario.verifiers.tiers:
        if target + 1 >= tier.first and tier.verify is not None:
            chosen = tier.verify
    return chosen


def draft_time(scenario: Scenario, drafter: int) -> StepTime:
    """Return the draft time of drafter number `drafter` (from 0): its tier's or the profile's."""
    chosen = profile_of(scenario).draft
    for tier in scenario.drafters.tiers:
        if drafter + 1 >= tier.first and tier.draft is not None:
            chosen = tier.draft
    return chosen


def prefill_time(scenario: Scenario) -> StepTime:
    """Return the targets' prefill time: the scenario's or the profile's."""
    return scenario.verifiers.prefill or profile_of(scenario).verify_prefill


def decode_time(scenario: Scenario) -> StepTime:
    """Return the targets' time of one plain decoding step: the scenario's or the profile's."""
    return scenario.verifiers.decode or profile_of(scenario).decode


def turns_of(scenario: Scenario, device: str) -> Turns | None:
    """Return what stations pay for finding the device of that name used by others; None where it is their own."""
    shared = scenario.devices.get(device)
    if shared is None:
        return None
    profile = profile_of(scenario)
    if shared.sharing == "one-process":
        return profile.one_process
    targets = scenario.verifiers.count if scenario.verifiers.device == device else 1
    return profile.turns[min(targets, len(profile.turns)) - 1]


def wake_up_s(scenario: Scenario, device: str, kind: str = "real") -> float:
    """Return how long an idle station on that device takes to begin what a message asks for.

    A replayed target does not sleep, and in one process a message is a function call.
    """
    shared = scenario.devices.get(device)
    awake = kind == "replayed" or (shared is not None and shared.sharing == "one-process")
    return 0.0 if awake else profile_of(scenario).wake_up_s


def link_time(scenario: Scenario, target: int, drafter: int = 0) -> LinkTime:
    """Return the link between a target and a drafter (numbers from 0): a tier's, the scenario's or the profile's.

    Within one process there is none.
    """
    shared = scenario.devices.get(scenario.verifiers.device)
    if shared and shared.sharing == "one-process" and scenario.drafters.device == scenario.verifiers.device:
        return LinkTime()
    chosen = scenario.link or profile_of(scenario).link
    numbered = ((scenario.drafters.tiers, drafter), (scenario.verifiers.tiers, target))
    for tiers, number in numbered:
        for tier in tiers:
            if number + 1 >= tier.first and tier.link is not None:
                chosen = tier.link
    return chosen
