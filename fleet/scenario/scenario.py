"""The keys of a scenario file (TOML) as frozen structs, the same for the simulated and the real world."""

import hashlib
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from specfleet.fleet.acceptance.models import AcceptanceModel
from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.inputs.format import FORMAT, Version
from specfleet.fleet.policies.adaedl import AdaEdl
from specfleet.fleet.policies.adaptive import Adaptive
from specfleet.fleet.policies.admit import Admission, Everyone
from specfleet.fleet.policies.aligned import AlignedRule
from specfleet.fleet.policies.allocate import Fixed, FixedShare, Needs, RandomShare
from specfleet.fleet.policies.by_batch import ByBatch
from specfleet.fleet.policies.dsde import Dsde
from specfleet.fleet.policies.goodput import Goodput
from specfleet.fleet.policies.goodspeed import GoodSpeed
from specfleet.fleet.policies.group import DraftGroup, One
from specfleet.fleet.policies.order import Fifo, Order
from specfleet.fleet.policies.overlap import InTurn, Overlap
from specfleet.fleet.policies.own import with_own
from specfleet.fleet.policies.route import Affinity, Route
from specfleet.fleet.policies.shapes import CHAIN, Shape
from specfleet.fleet.policies.warm_up import NoWarmUp, WarmUp
from specfleet.fleet.scenario.arrivals import Gamma, Poisson, Trace
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.faults import Fault
from specfleet.fleet.scenario.lengths import Between, Tokens
from specfleet.fleet.scenario.prefill import Prefill
from specfleet.fleet.scenario.shared import Conversations, SharedPrompts
from specfleet.fleet.scenario.slo import Slo
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime, StepTime

Count = Annotated[int, Meta(ge=1, le=10**9)]
WholeNumber = Annotated[int, Meta(ge=0, le=10**9)]
Depth = Annotated[int, Meta(ge=1, le=4096)]
Number = Annotated[int, Meta(ge=1, le=10**5)]  # of a station, from 1: larger than any fleet


DraftKind = Literal["model", "eagle", "block", "lookup", "suffix", "replayed"]
FINDING: tuple[DraftKind, ...] = ("lookup", "suffix")
TargetKind = Literal["real", "replayed"]
VerificationRule = Literal["rejection", "without-replacement", "top-k", "match"]
Sharing = Literal["turns", "contended"]
Late = Literal["skip", "wait", "decode"]
Place = Literal["own", "target"]
if TYPE_CHECKING:
    GrantRule = Fixed | FixedShare | RandomShare | ByBatch | GoodSpeed | Dsde | Adaptive  # granted in advance
else:
    GrantRule = with_own("allocate", Fixed, FixedShare, RandomShare, ByBatch, GoodSpeed, Dsde, Adaptive)
LengthRule = GrantRule | AdaEdl | Goodput  # the last two need drafts on the target's device
Acceptance = AcceptanceModel | TokenModel


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Drafters or targets numbered `first` and above differ from the others: another machine, a longer link.

    Keys:
        first (number): The first one that differs, counted from 1. Rises from tier to tier; of each key, the last tier
            that covers a station and has it applies. A tier beyond the fleet waits for a larger `count`.
        profile: The profile of their machine: a profile as the scenario's `profile`. It gives all their times, of
            targets also the size of their KV cache, in place of `verifiers.verify` and of the steps of tiers before;
            links and acceptance stay the others'.
        step: Time of their draft steps, or of their verifications, in place of the profile's; of drafters of blocks, of
            whole blocks. Their prefills and plain decoding steps stay those of their profile.
        link: Their link to every station of the other side, in place of the scenario's or the profile's `link`. If
            both ends have one, the target's applies.
        model: Their model in the real world, read as the side's `model`. All models of a fleet share a tokenizer. The
            simulation draws one `acceptance` for all stations.
    """

    first: Number
    step: StepTime | None = None
    link: LinkTime | None = None
    model: str | UnsetType = UNSET  # which leaves digests of scenarios without one alone
    profile: HardwareProfile | str | UnsetType = UNSET


class FindFirst(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is found in a row's text goes before what a model or a head drafts for it.

    Keys:
        kind: What finds: "suffix" or "lookup", as `drafters.kind`.
        least (tokens): Length of the drafter's drafts. What is found is taken if it is as long, and may have up to
            `drafters.depth` tokens. 0 is all tokens that a draft may have.
        drafter: Rows that the drafter runs for: "all", in each step, though what it drafts for rows in which enough
            is found is dropped, as vLLM, Arctic Inference and TensorRT-LLM do; or the "rest", if there is any.
    """

    kind: Literal["suffix", "lookup"] = "suffix"
    least: Annotated[int, Meta(ge=0, le=4096)] = 0
    drafter: Literal["all", "rest"] = "all"

    def of_head(self, tokens: int) -> int:
        """Return the draft tokens of the model or head where a draft may have so many."""
        return min(self.least or tokens, tokens)


class Drafters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The drafting side.

    Keys:
        count (drafters): `M`, the number of drafters. 0 is plain autoregressive decoding, without a drafter.
        depth (levels): `d`, levels of a draft; for a chain, the speculation length in tokens.
        shape: The shape of drafts: a chain, a static tree, or a dynamic tree that follows likely branches.
        place: Where drafts come from: "own", drafters on devices of their own; "target", each target's device, which
            drafts for all rows after each of its steps, as heads and small models of servers do.
        kind: What drafts: a small model; an EAGLE head of the target; "block", a drafter of all `depth` tokens in one
            pass over mask positions (PARD, P-EAGLE, DFlash, DSpark). Two need no model: prompt lookup; "suffix", which
            drafts what most often followed the repeated end of a text, in it or in earlier answers. In the real world
            "replayed" replaces a drafter without its accelerator: it waits for the profile's step times, and sends
            drafts of a small model's size. It needs replayed targets, which then draw acceptance from `acceptance`, as
            the simulation does.
        first: What is searched in texts before that, on the target's device. Left out, nothing is.
        model: The model in the real world: the folder of a Hugging Face causal language model (for "eagle", of a head
            in the published layout), relative to the working folder, or "demo", the shipped pair.
        profile: The profile of the drafters' machine, if it differs from the targets': a profile as the scenario's
            `profile`. It gives drafts, their prefill and their overhead; links and acceptance stay the scenario's, or
            its `profile`'s. Empty: `profile` gives these, too.
        device: Name of a shared device in `[devices]`; empty for a device of its own for each drafter.
        order: Which waiting request a drafter serves next.
        admit: Whether a drafter accepts another session.
        warm_up: Whether a drafter runs throw-away tokens after an idle gap, to restore its steady speed.
        group: Which sessions share a draft step: one at a time, or a batch of all that wait.
        overlap: Whether drafting continues during verification.
        route: Which of several drafters drafts the next round of a session. A session that moves is prefilled anew.
        prefix_cache: Whether a drafter keeps what it has read, as `verifiers.prefix_cache`, in blocks of
            `verifiers.kv_block_size`: a session that opens reads the rest. Its room is that of "within-memory" in
            `admit`, of which open sessions have theirs; else it has no limit.
        lease_s: Timeout after which a drafter ends the session of a target that does not answer, and frees its cache.
            0 is never.
        tiers: Groups of drafters that differ from the others.
    """

    count: Annotated[int, Meta(ge=0, le=10**5)] = 1
    depth: Depth = 5
    shape: Shape = CHAIN
    place: Place = "own"
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
    prefix_cache: bool = False
    lease_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    tiers: tuple[Tier, ...] = ()
    first: FindFirst | UnsetType = UNSET  # which leaves digests of scenarios without one alone

    @property
    def finds(self) -> bool:
        """Whether drafts are found in texts, without a model, and in some rounds alone."""
        return self.kind in FINDING


class Verifiers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verifying side: the targets.

    Keys:
        count (targets): `N`, the number of targets. Each has a device of its own unless `device` is set.
        kind: What a target is in the real world: "real" runs the model. "replayed" replaces an absent accelerator: it
            waits for the time of `verify` or the profile, and compares drafts with a target's continuation, decoded
            beforehand; with a replayed drafter, it draws acceptance instead.
        model: The model in the real world: the folder of a Hugging Face causal language model, relative to the
            working folder, or "demo", the shipped pair.
        profile: The profile of the targets' machine, if it differs from the drafters': a profile as the scenario's
            `profile`. It gives verifications, prefills, plain decoding and their overhead. Empty: `profile` gives
            these, too.
        device: Name of a shared device in `[devices]`; empty for a device of its own for each target.
        verify: Time of a step of a target, be it a verification, a prefill or a plain decoding step, in place of the
            profile's.
        tiers: Groups of targets that differ from the others.
        priorities (priority): Priorities of the requests of targets 1, 2, ...; a larger number is more urgent, and
            targets beyond the list have 0. The order "priority" uses them.
        max_num_seqs (requests): Most requests that a target runs at once; all of them share each step. vLLM's name, and
            its default below 70 GiB of memory (1,024 above). With 1 a target decodes one request after the other.
        max_num_batched_tokens (tokens): Most tokens of a step, drafts included; of trees, levels count. Running
            requests come first, and prompts take the rest, in chunks. vLLM's name, and its default below 70 GiB of
            memory (8,192 above). Less than the longest draft (of a tail that grows without a pause, the
            shortest), the token before it and, on the target's device, one more for a small model or as many for a
            drafter of blocks is raised to that.
        prefill_first: Whether a step reads waiting prompts alone, and requests decode only while none fits: as
            SGLang's scheduler does.
        kv_tokens (tokens): Size of a target's KV cache; of trees, levels count. A request that does not fit waits; when
            running ones grow beyond it, the newest is preempted and computed again. 0 is the profile's size, or no
            limit.
        kv_block_size (tokens): Tokens of a block of the KV cache: each request takes whole blocks. vLLM's
            `--block-size` and its default on GPUs. It needs a cache of limited size, or a `prefix_cache`.
        prefix_cache: Whether requests share the cached blocks of equal beginnings of their texts, by vLLM's rules:
            whole blocks, all of a text but its last token, with EAGLE heads one block less. What is found is not
            computed. Texts share what `workload.shared`, `workload.conversations` or a trace's hash_ids say; a
            preempted request finds its own blocks. Beside `prefill` only prefill servers share blocks.
        prefill: Prefill servers, which compute prompts in place of the targets. Left out, targets do both. The engine
            has replayed ones, beside replayed targets and drafters.
        gpu_memory_utilization (share): Share of each of a target's devices that the server uses; weights and
            activations leave the rest to the KV cache. vLLM's name. It needs a profile with the memory of its device,
            as estimates have. Left out, it is 0.92, vLLM's default, where a profile knows memory.
        late: What a step does about a request without its draft. "skip": the step goes without it. "wait":
            all drafts are verified together, a barrier. "decode": it goes on with one token.
        aligned: Which rows share a rectangular cache that needs equal lengths, as in research code: EqSpec, ExSpec. It
            needs `drafters.place = "target"`. Left out, rows have their own lengths, as in serving engines.
        patience_s: Timeout of a draft, after which a target decodes alone. 0 is none.
        rejoin_s: Time of decoding alone before each retry.
        allocate: Rule of the speculation lengths. Left out, `drafters.depth` applies. "adaedl", which stops drafts
            token by token, and "goodput" need `drafters.place = "target"`.
        rule: Rule by which drafts are accepted. All rules keep the target's distribution. "rejection": a token is
            accepted with probability min(1, p/q). "without-replacement": the same for the children of a node in a
            tree, each drawn once. "top-k": the drafter's best children, without sampling. "match": the target samples
            a token and follows the equal child.
    """

    count: Number = 1
    kind: TargetKind = "real"
    model: str = "demo"
    profile: HardwareProfile | str = ""
    device: str = ""
    verify: StepTime | None = None
    tiers: tuple[Tier, ...] = ()
    priorities: tuple[Annotated[int, Meta(ge=-(10**9), le=10**9)], ...] = ()
    max_num_seqs: Count = 256
    max_num_batched_tokens: Count = 2048
    prefill_first: bool = False
    kv_tokens: WholeNumber = 0
    kv_block_size: Annotated[int, Meta(ge=1, le=10**6)] = 16
    prefix_cache: bool = False
    prefill: Prefill | UnsetType = UNSET  # which leaves digests of scenarios without one alone
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] | None = None
    late: Late = "skip"
    aligned: AlignedRule | None = None
    patience_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    rejoin_s: Annotated[float, Meta(ge=1e-3, le=1e9)] = 1.0
    allocate: LengthRule | None = None
    rule: VerificationRule = "rejection"


class SharedDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of several stations; `drafters.device` and `verifiers.device` refer to its `NAME`.

    Keys:
        sharing: How stations share it. "turns": one step at a time, first come first served, each station in its own
            process. "contended": concurrent steps, slowed by the profile's `contention`.
    """

    sharing: Sharing = "turns"


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requests. Without arrivals the loop is closed: a stream's next request opens when its last is complete.

    Keys:
        requests (requests): Number of requests in all; they are dealt to the streams in turn.
        seed (number): Seed of drawn lengths and arrivals, to vary the scenario's seed with the same requests. Left
            out, it is the scenario's.
        streams (streams): Number of concurrent requests in a closed loop. 0 is one for each drafter or verifier,
            whichever are more. With more than that, and as many as requests, all wait from the beginning.
        prompts: Prompts in the real world: "demo/evaluation", "demo/calibration", or a JSON Lines file, relative to
            the scenario's folder. A line is `{"prompt": "TEXT"}` or `{"prompt_ids": [1, 2]}`; of Spec-Bench's `turns`
            the first counts. The simulated world needs lengths only and does not read it.
        prompt_tokens (tokens): Length of a prompt: a number, or a table with `low` and `high`.
        new_tokens (tokens): Tokens to decode for a request: a number, or such a table. Requests run to that length,
            whatever the text, so that systems do equal work.
        shared: Beginnings that prompts share, before `prompt_tokens`. Left out, there are none.
        conversations: Requests are turns of conversations: a prompt is the text so far and `prompt_tokens` new ones.
            Left out, each request is a text of its own.
        arrivals: Open-loop arrivals; each request, or conversation, is then its own stream. Left out, the loop is
            closed.
        lengths: Lengths in place of `prompt_tokens` and `new_tokens`: those of a published workload, "sharegpt"
            (means of the vLLM paper), "chat" or "summarising" (medians and 90th percentiles of Sarathi-Serve's table
            2); or row after row of a CSV file with the columns num_prefill_tokens and num_decode_tokens, or of a
            published trace, relative to the scenario's folder, from the first again after the last. docs/loads.md
            lists forms of files, and published and assumed numbers. Empty: these two keys apply.
        id_tokens (tokens): Tokens of a prompt that one of the hash_ids in the file of `lengths` names, as in a trace.
            0: the ids are not read.
        temperature (factor): Sampling temperature, which divides the logits; 0 is greedy decoding.
        top_k (tokens): Number of the likeliest tokens that may be drawn; 0 is all of them.
        top_p (share): Total probability of the likeliest tokens that may be drawn; 1 is all of them.
    """

    requests: Count = 64
    seed: WholeNumber | None = None
    streams: WholeNumber = 0
    prompts: str = "demo/evaluation"
    prompt_tokens: Tokens | Between = 192
    new_tokens: Tokens | Between = 96
    shared: SharedPrompts | None = None
    conversations: Conversations | None = None
    arrivals: Poisson | Gamma | Trace | None = None
    lengths: str = ""
    id_tokens: Annotated[int, Meta(ge=0, le=10**6)] = 0
    temperature: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    top_k: WholeNumber = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measurement window of a run.

    It ends when the first stream of a closed loop is done, so that all stations have work; where requests wait for a
    station, with arrivals or all from the beginning (`workload.streams`), it ends with the run.

    Keys:
        warm_up_share (share): Share of the time until the window's end that is left out at the beginning.
        ends: What ends it where requests arrive: "run", the last token; "arrivals", the last arrival of a request
            or conversation, after which the load falls.
    """

    warm_up_share: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    ends: Literal["run", "arrivals"] = "run"


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one fleet: a TOML file with these top-level keys.

    Keys:
        name: Name of the scenario in tables and figures.
        seed (number): Seed of all random numbers; equal scenarios with equal seeds give equal simulated records.
        profile: The machine and the model pair: the name of a shipped profile, the path of a profile file (JSON)
            relative to the scenario's folder, or a table with the numbers themselves (see profile.md).
        drafters: The drafting side.
        verifiers: The verifying side.
        devices: Devices that host several stations, by name: tables `[devices.NAME]`.
        link: The link between every drafter and every target, in place of the profile's.
        acceptance: Acceptance of draft tokens in the simulated world. Left out, the profile's model applies.
        workload: The requests.
        measure: The measurement window.
        slo: Goals of each request. Left out, there are none.
        cost: Prices of devices. Left out, tokens have no price.
        precision: Precision of the models' numbers in the real world; with int8 and int4, of the weights of layers,
            and the rest is bfloat16.
        faults: Fault script, entry by entry: stations that die or stall, messages that are lost, late, repeated or
            overtaken.
        version (number): Format of the file. A file of another format is refused.
    """

    name: Annotated[str, Meta(max_length=1000)] = "unnamed"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    profile: HardwareProfile | str = ""
    drafters: Drafters = Drafters()
    verifiers: Verifiers = Verifiers()
    devices: dict[str, SharedDevice] = {}
    link: LinkTime | None = None
    acceptance: Acceptance | None = None
    workload: Workload = Workload()
    measure: Measure = Measure()
    slo: Slo | None = None
    cost: Cost | None = None
    precision: Literal["float32", "float64", "bfloat16", "float16", "int8", "int4"] = "float32"
    faults: tuple[Fault, ...] = ()
    version: Version = FORMAT

    def digest(self) -> str:
        """Fingerprint of the whole content, the profile's numbers included where they are inline."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def needs_of(scenario: Scenario) -> Needs:
    """Return the signals of draft tokens that the scenario's length rule uses."""
    rule = scenario.verifiers.allocate
    return "lengths" if rule is None else rule.needs
