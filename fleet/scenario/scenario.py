"""What to run: a scenario file (TOML) as frozen structs, the same for the simulated and the real world."""

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fleet.acceptance.models import LengthModel
from fleet.acceptance.tokens import TokenModel
from fleet.inputs.format import FORMAT, Version
from fleet.policies.adaedl import AdaEdl
from fleet.policies.admit import Admission, Everyone
from fleet.policies.allocate import Fixed, FixedShare, Heuristic, Needs, RandomShare
from fleet.policies.depth import AdaptiveDepth
from fleet.policies.dsde import Dsde
from fleet.policies.goodspeed import GoodSpeed
from fleet.policies.group import DraftGroup, Group, One
from fleet.policies.order import Fifo, Order
from fleet.policies.overlap import InTurn, Overlap
from fleet.policies.ragged import BatchRule
from fleet.policies.route import Affinity, Route
from fleet.policies.shapes import CHAIN, Shape
from fleet.policies.warm_up import NoWarmUp, WarmUp
from fleet.scenario.arrivals import Gamma, Poisson, Trace
from fleet.scenario.cost import Cost
from fleet.scenario.faults import Fault
from fleet.scenario.lengths import Between, Tokens
from fleet.scenario.memory import DeviceMemory
from fleet.scenario.slo import Slo
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime, StepTime

Count = Annotated[int, Meta(ge=1, le=10**9)]
WholeNumber = Annotated[int, Meta(ge=0, le=10**9)]
Depth = Annotated[int, Meta(ge=1, le=4096)]
Number = Annotated[int, Meta(ge=1, le=10**5)]  # of a station, from 1: a fleet has no more


DraftKind = Literal["model", "eagle", "lookup", "replayed"]
TargetKind = Literal["real", "replayed"]
VerificationRule = Literal["rejection", "without-replacement", "top-k", "match"]
Move = Literal["prefill", "transfer", "shared"]
Sharing = Literal["turns", "contended", "one-process"]
GrantRule = Fixed | FixedShare | RandomShare | Heuristic | GoodSpeed | Dsde  # what a verifier can grant beforehand
LengthRule = GrantRule | AdaEdl  # a batch can stop drafts after a token, too
Acceptance = LengthModel | TokenModel


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafters or targets numbered `first` and above differ from the others: a slower device, a longer link.

    Keys:
        first (number): The first one that differs, counted from 1. Rises from tier to tier: where several hold for a
            station, the last one wins.
        step: Time of their draft steps, or of their verifications, in place of the scenario's or the profile's.
        link: Their link to every station of the other side, in place of the scenario's or the profile's `link`. Where
            both ends have one, the target's holds.
    """

    first: Number
    step: StepTime | None = None
    link: LinkTime | None = None


class Drafters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The drafting side.

    Keys:
        count (drafters): `M`, how many drafters there are. 0 is plain autoregressive decoding, without a drafter.
        depth (levels): `d`, levels of a draft; for a chain, the speculation length in tokens.
        shape: What a draft looks like: a chain, a static tree, or a tree that grows where the drafter is sure.
        kind: What drafts: a small model, an EAGLE head of the target, or prompt lookup, which needs no model. In the
            real world "replayed" stands for a drafter whose accelerator is not there: it waits as long as the profile's
            steps take, and sends drafts of the size of a small model's. It needs replayed targets, which then draw what
            they accept from `acceptance`, as the simulation does.
        model: What the real world loads: the folder of a Hugging Face causal language model (for "eagle", of a head in
            the published layout), found relative to the working folder, or "demo", the pair that ships.
        profile: The drafters' machine, where it is another than the targets': a profile as the scenario's `profile`. It
            has the times of drafts, their prefill and their overhead; links and acceptance stay the scenario's, or its
            `profile`'s. Empty: `profile` has these, too.
        device: Name of a shared device in `[devices]`; empty for a device of its own for each drafter.
        order: Which waiting request a drafter serves next.
        admit: Whether a drafter takes one more session.
        warm_up: Whether a drafter runs throw-away tokens after it was idle, to get back to its steady speed.
        group: Which sessions share a draft step: one at a time, or a batch of those that wait.
        overlap: Whether drafting goes on while a draft is verified.
        route: Which of several drafters drafts the next round of a session.
        move: How the cache of a session comes to another drafter: it prefills the text anew, fetches the cache at the
            profile's `transfer` time, or shares it at no cost.
        view_delay_s: How old the router's news of the drafters is.
        limits_per_s (rounds/s): How many rounds a second targets 1, 2, ... may ask for at most; 0 is any number, and
            the last entry holds for all further targets.
        allocate: How deep to draft, where that is not always `depth`. Left out, it is.
        lease_s: After how much silence of a target, while it has to answer, a drafter ends its session and frees its
            cache. 0 is never.
        tiers: Groups of drafters that differ from the others.
    """

    count: Annotated[int, Meta(ge=0, le=10**5)] = 1
    depth: Depth = 5
    shape: Shape = CHAIN
    kind: DraftKind = "model"
    model: str = "demo"
    profile: HardwareProfile | str = ""
    device: str = ""
    order: Order = Fifo()
    admit: Admission = Everyone()
    warm_up: WarmUp = NoWarmUp()
    group: DraftGroup = One()
    overlap: Overlap = InTurn()
    route: Route = Affinity()
    move: Move = "prefill"
    view_delay_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    limits_per_s: tuple[Annotated[float, Meta(ge=0, le=1e9)], ...] = ()
    allocate: Fixed | AdaptiveDepth | None = None
    lease_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    tiers: tuple[Tier, ...] = ()


class Verifiers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verifying side: the targets.

    Keys:
        count (targets): `N`, how many targets there are. Each has a device of its own unless `device` says otherwise.
        kind: What a target is in the real world: "real" runs the model; "replayed" stands for an accelerator that is
            not there: it waits for the time that `verify` or the profile states, and compares drafts with a target's
            recorded continuation, decoded beforehand; or draws what it accepts, where the drafter is replayed, too.
        model: What the real world loads: the folder of a Hugging Face causal language model, found relative to the
            working folder, or "demo", the pair that ships.
        profile: The targets' machine, where it is another than the drafters': a profile as the scenario's `profile`. It
            has the times of verifications, prefills, plain decoding and their overhead. Empty: `profile` has these,
            too.
        device: Name of a shared device in `[devices]`; empty for a device of its own for each target.
        verify: Time of a step of a target, be it a verification, a prefill or a plain decoding step, in place of the
            profile's.
        tiers: Groups of targets that differ from the others.
        priorities (priority): Priorities of the requests of targets 1, 2, ...; a larger number is more urgent, and
            targets beyond the list have 0. The order "priority" looks at them.
        group: Which sessions share a verification: one at a time, a batch of those that wait, or all at a barrier.
        patience_s: How long a target waits for a draft before it gives its drafter up and decodes alone. 0 is for ever.
        rejoin_s: How long it then decodes alone before it asks its drafter again, which it goes on doing until the
            drafter answers.
        allocate: By which rule the verifier grants the speculation lengths. Left out, `drafters.depth` holds. Rules
            that stop drafts token by token (adaedl) go into `[batch]` only.
        rule: By which rule drafts are accepted. All of them leave the target's distribution as it is. "rejection": a
            token is accepted with probability min(1, p/q). "without-replacement": the same for the children of a node
            in a tree, each drawn once. "top-k": the drafter's best children, of which nothing is drawn. "match": the
            target draws a token and follows the child that is the same.
    """

    count: Number = 1
    kind: TargetKind = "real"
    model: str = "demo"
    profile: HardwareProfile | str = ""
    device: str = ""
    verify: StepTime | None = None
    tiers: tuple[Tier, ...] = ()
    priorities: tuple[Annotated[int, Meta(ge=-(10**9), le=10**9)], ...] = ()
    group: Group = One()
    patience_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    rejoin_s: Annotated[float, Meta(ge=1e-3, le=1e9)] = 1.0
    allocate: GrantRule | None = None
    rule: VerificationRule = "rejection"


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafter and target in one process on one device, over a batch of sessions.

    Keys:
        rule: Which rows form a batch, and what their different lengths cost.
        allocate: By which rule rows get their speculation lengths. Left out, `drafters.depth` holds.
        padded: Whether a verification fills drafts up to the longest of the batch, which costs the time of the filling.
    """

    rule: BatchRule
    allocate: LengthRule | None = None
    padded: bool = True


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that hosts several stations; `NAME` is what `drafters.device` and `verifiers.device` call it.

    Keys:
        sharing: How stations share it. "turns": one step at a time, in the order of asking, each station in a process
            of its own. "contended": steps run at once and slow each other by the profile's `contention`. "one-process":
            they take turns in one process, and messages between them are function calls without a link.
    """

    sharing: Sharing = "turns"


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requests. Without arrivals the loop is closed: a stream's next request opens when its last is complete.

    Keys:
        requests (requests): How many requests there are in all; they are dealt to the streams in turn.
        seed (number): Of lengths and arrivals that are drawn, so that the scenario's may change while requests stay the
            same. Left out, it is the scenario's.
        streams (streams): How many requests decode at a time in a closed loop. 0 is one for each drafter or verifier,
            whichever are more; in a `[batch]`, all requests wait from the beginning.
        prompts: What the real world decodes: "demo/evaluation", "demo/calibration", or a JSON Lines file with a field
            `prompt` (text) or `prompt_ids` (token ids), found relative to the scenario's folder. The simulated world
            needs lengths only and does not read it.
        prompt_tokens (tokens): Length of a prompt: a number, or a table with `low` and `high`.
        new_tokens (tokens): Tokens to decode for a request: a number, or such a table. Requests run to that length,
            whatever the text says, so that equal work is compared.
        arrivals: How requests come by themselves, each then a stream of its own. Left out, the loop is closed.
        conversations: A JSON Lines file with a list `turns` in each line (Spec-Bench), found relative to the scenario's
            folder. A stream is then one conversation, whose context grows from turn to turn; four characters count as a
            token. Empty: there are none.
        lengths: Lengths in place of `prompt_tokens` and `new_tokens`: like those of a published workload, "sharegpt"
            (means of the vLLM paper), "chat" or "summarising" (medians and 90th percentiles of Sarathi-Serve's table
            2); or row after row of a CSV file with the columns num_prefill_tokens and num_decode_tokens, found relative
            to the scenario's folder. docs/loads.md says what is published and what assumed. Empty: these two hold.
        temperature (factor): Temperature of sampling, which divides the logits; 0 is greedy decoding.
        top_k (tokens): How many of the likeliest tokens may be drawn; 0 is all of them.
        top_p (share): Tokens are drawn from the likeliest ones that together have this probability; 1 is all of them.
    """

    requests: Count = 64
    seed: WholeNumber | None = None
    streams: WholeNumber = 0
    prompts: str = "demo/evaluation"
    prompt_tokens: Tokens | Between = 192
    new_tokens: Tokens | Between = 96
    arrivals: Poisson | Gamma | Trace | None = None
    conversations: str = ""
    lengths: str = ""
    temperature: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    top_k: WholeNumber = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a run counts.

    It counts until the first stream of a closed loop has nothing left to do; with arrivals, to the end of the run.

    Keys:
        warm_up_share (share): What is left out at the beginning, as a share of the time until the run stops counting.
    """

    warm_up_share: Annotated[float, Meta(ge=0, lt=1)] = 0.1


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one fleet: a TOML file whose top-level keys are these.

    Keys:
        name: What the scenario is called in tables and figures.
        seed (number): Seed of all random numbers; equal scenarios with equal seeds give equal simulated records.
        profile: The machine and the model pair: the name of a shipped profile, the path of a profile file (JSON)
            relative to the scenario's folder, or a table with the numbers themselves (see profile.md).
        drafters: The drafting side.
        verifiers: The verifying side.
        batch: Drafter and target in one process on one device, over a batch of sessions. Left out, they are stations of
            their own.
        devices: Devices that host several stations, by name: tables `[devices.NAME]`.
        link: The link between every drafter and every target, in place of the profile's.
        acceptance: How many draft tokens pass verification, in the simulated world. Left out, the profile's model
            holds.
        workload: The requests.
        measure: Which part of a run counts.
        slo: What each request is to reach. Left out, no request is held against a goal.
        cost: What devices cost, and draw. Left out, tokens have no price.
        memory: What devices and models hold. Where it is given, the analytic model says how many targets fit, and
            the admission "within-memory" knows its room. Where a drafter's caches run out of it, the sessions that were
            drafted for longest ago are evicted, and prefilled again at their next round.
        precision: Precision of the models' numbers in the real world.
        faults: What goes wrong on purpose, entry by entry: stations that die or stall, messages that are lost, late,
            repeated or overtaken.
        version (number): Format of the file. A file of another format is refused.
    """

    name: str = "unnamed"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    profile: HardwareProfile | str = ""
    drafters: Drafters = Drafters()
    verifiers: Verifiers = Verifiers()
    batch: Batch | None = None
    devices: dict[str, Device] = {}
    link: LinkTime | None = None
    acceptance: Acceptance | None = None
    workload: Workload = Workload()
    measure: Measure = Measure()
    slo: Slo | None = None
    cost: Cost | None = None
    memory: DeviceMemory | None = None
    precision: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    faults: tuple[Fault, ...] = ()
    version: Version = FORMAT

    def digest(self) -> str:
        """Fingerprint of the whole content, the profile's numbers included where they are inline."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def mean_tokens(length: int | Between) -> float:
    """Return the mean of a length."""
    return length if isinstance(length, int) else length.drawn_mean


def needs_of(scenario: Scenario) -> Needs:
    """Return what the scenario's length rule needs to know of draft tokens."""
    rule = scenario.batch.allocate if scenario.batch is not None else scenario.verifiers.allocate
    return "lengths" if rule is None else rule.needs
