"""What to run: a scenario file (TOML) as frozen structs, the same for the simulated and the real world."""

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fleet.chance.acceptance import AcceptanceModel
from fleet.chance.tokens import TokenModel
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
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime, StepTime

Count = Annotated[int, Meta(ge=1)]
WholeNumber = Annotated[int, Meta(ge=0)]


DraftKind = Literal["model", "eagle", "lookup"]
TargetKind = Literal["real", "replayed"]
VerificationRule = Literal["rejection", "without-replacement", "top-k", "match"]
Move = Literal["prefill", "transfer", "shared"]
Sharing = Literal["turns", "contended", "one-process"]
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
    kind: DraftKind = "model"
    model: str = "demo"
    device: str = ""
    order: Order = Fifo()
    admit: Admission = Everyone()
    warm_up: WarmUp = NoWarmUp()
    group: Group = One()
    overlap: Overlap = InTurn()
    route: Route = Affinity()
    move: Move = "prefill"
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
    kind: TargetKind = "real"
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
    rule: VerificationRule = "rejection"


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafter and target in one process on one device, over a batch of sessions.

    `rule`: which rows form a batch, and what their different lengths cost. `allocate`: their speculation lengths; where
    it is missing, `drafters.depth` holds. `padded`: a verification fills drafts up to the longest.
    """

    rule: BatchRule
    allocate: GrantRule | None = None
    padded: bool = True


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


def mean_tokens(length: int | Between) -> float:
    """Return the mean of a length."""
    return length if isinstance(length, int) else (length.low + length.high) / 2


def needs_of(scenario: Scenario) -> Needs:
    """Return what the scenario's length rule needs to know of draft tokens."""
    rule = scenario.batch.allocate if scenario.batch is not None else scenario.verifiers.allocate
    return "lengths" if rule is None else rule.needs
