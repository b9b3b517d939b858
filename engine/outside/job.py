"""What a driver of another engine receives and answers, as lines of JSON: settings, workloads, observed steps."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from specfleet.engine.decoding.folders import folder_of
from specfleet.engine.launch.runnable import simulated_alone
from specfleet.engine.node.prompts import goes_on, prompts_of, with_identities
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.readers import value_of
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Drafters, DraftKind, Scenario, Verifiers
from specfleet.fleet.scenario.workload import streams_of

LOOKUP = {"prompt_lookup_max": 3, "prompt_lookup_min": 1}  # as our own prompt lookup

KINDS: tuple[DraftKind, ...] = ("model", "block", "lookup", "suffix")  # of drafts; arctic-inference finds the last
KNOWN = {
    "drafters": {"count", "depth", "place", "kind", "model", "profile"},
    "verifiers": {"model", "profile", "verify", "max_num_seqs", "max_num_batched_tokens"}
    | {"kv_tokens", "kv_block_size", "prefix_cache"},
}
"""Keys that mean the same in vLLM; others have to keep their defaults."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of an engine that hold for all of its workloads.

    - `target`: folder of the model. `precision`: of its numbers.
    - `max_model_len` (tokens): longest text; 0 is the model's.
    - `kv_tokens`, `block_size` (tokens): size of the KV cache and of its blocks; 0 is the engine's choice.
    - `speculative`: what vLLM calls its speculative config; empty without drafts.
    - `prefix_cache`: whether it is on; each workload begins with an empty one.
    """

    target: str
    precision: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int
    speculative: dict[str, Any]
    block_size: int = 0
    prefix_cache: bool = False


class Facts(msgspec.Struct, frozen=True):
    """What a started engine says of itself: its version, the size of a KV block in tokens, and its blocks."""

    version: str
    block_size: int = 1
    kv_blocks: int = 0


class Asked(msgspec.Struct, frozen=True):
    """A request: token ids of its prompt, the tokens to decode, and when it may open at the earliest.

    - `think_s`: seconds from the answer before in its stream. `follows`: its prompt is all text of its stream so far,
      and these ids.
    """

    number: int
    prompt: list[int]
    new_tokens: int
    not_before_s: float
    think_s: float = 0.0
    follows: bool = False


class Job(msgspec.Struct, frozen=True):
    """A workload: the requests of each stream, by tag. Each opens when the one before is complete."""

    streams: list[list[Asked]]
    sampling: dict[str, float]


class SeenStep(msgspec.Struct, frozen=True):
    """A step as the engine ran it; times in seconds since the run began.

    - `rows`: by request, the tokens that it processed, how many of them were drafts, and how many it yielded.
    - `preempted`: requests that lost their KV cache before it. `drafts`: drafted tokens for the next step, by request.
    - `computed`: tokens of each request that were in the cache before. `blocks`: KV blocks that are free then, contents
      that are held, and contents that were lost so far; both empty where they are not seen.
    - `start_s`: when its scheduling began. `draft_s`: when its tokens were known and the drafter began; None without
      one. `end_s`: when its results were out.
    """

    rows: dict[int, tuple[int, int, int]]
    start_s: float
    end_s: float
    draft_s: float | None = None
    preempted: list[int] = []
    drafts: dict[int, int] = {}
    computed: dict[int, int] = {}
    blocks: tuple[int, ...] = ()


class Served(msgspec.Struct, frozen=True):
    """A workload as the engine served it: when each request came, all steps in order, the texts."""

    joined_s: dict[int, float]
    steps: list[SeenStep]
    texts: dict[int, list[int]]


def settings_of(fleet: Fleet, scenario: Scenario) -> Settings:
    """Return vLLM's settings for a fleet of one target; InputError for a key that it does not know."""
    for reason in _refused(scenario):
        raise InputError(f"scenario {scenario.name!r}: {reason}, or run it on our own engine")
    verifiers, drafters = fleet.verifiers, fleet.drafters
    return Settings(
        target=str(folder_of(verifiers.model, "target")),
        precision=scenario.precision,
        max_model_len=min([size for size in (drafters.positions, scenario.verifiers.kv_tokens) if size], default=0),
        max_num_seqs=verifiers.batching.max_num_seqs,
        max_num_batched_tokens=verifiers.batching.max_num_batched_tokens,
        kv_tokens=scenario.verifiers.kv_tokens,
        speculative=_speculative(fleet),
        block_size=verifiers.batching.block_size if value_of(scenario, "verifiers.kv_block_size") else 0,
        prefix_cache=verifiers.prefix_cache,
    )


def job_of(fleet: Fleet) -> Job:
    """Return the fleet's workload with its prompts as token ids; InputError for a key that is simulated only."""
    for reason in simulated_alone(fleet):
        raise InputError(f"scenario {fleet.name!r}: {reason}")
    prompts, workload = prompts_of(fleet), fleet.workload
    streams = [
        [
            Asked(
                request.number, prompts[request.number], request.new_tokens, request.not_before_s, request.think_s,
                goes_on(request.identity),
            )
            for request in requests
        ]
        for _, requests in sorted(streams_of(with_identities(fleet)).items())
    ]  # fmt: skip
    top_k = workload.top_k or -1  # all tokens, as vLLM, SGLang and llama.cpp write it
    return Job(streams, {"temperature": workload.temperature, "top_k": top_k, "top_p": workload.top_p})


def _speculative(fleet: Fleet) -> dict[str, Any]:
    drafters = fleet.drafters
    if not drafters.count:
        return {}
    depth: Mapping[str, Any] = {"num_speculative_tokens": drafters.depth}
    if drafters.kind == "lookup":
        return {"method": "ngram", **depth, **LOOKUP}
    if drafters.kind == "suffix":
        return {"method": "suffix", **depth}
    is_block = drafters.kind == "block"
    folder = folder_of(drafters.model, "block" if is_block else "drafter")
    return {"method": "draft_model", "model": str(folder), **depth, **({"parallel_drafting": True} if is_block else {})}


def _refused(scenario: Scenario) -> Iterator[str]:
    """Yield why vLLM cannot run the scenario, by key."""
    drafters = scenario.drafters
    if drafters.count and drafters.place != "target":
        yield "drafters.place = 'own': vllm drafts on the target's device; allowed: 'target'"
    if drafters.count > 1:
        yield f"drafters.count = {drafters.count}: allowed on vllm: 0 or 1"
    if scenario.precision in ("int8", "int4"):
        yield f"precision = {scenario.precision!r}: allowed on vllm: no weights of int8 or int4"
    if drafters.count and drafters.kind not in KINDS:
        yield f"drafters.kind = {drafters.kind!r}: allowed on vllm: {', '.join(map(repr, KINDS))}"
    for table, stated, default in (("drafters", drafters, Drafters()), ("verifiers", scenario.verifiers, Verifiers())):
        for key in stated.__struct_fields__:
            if key not in KNOWN[table] and getattr(stated, key) != getattr(default, key):
                yield f"{table}.{key}: not set on vllm here; leave it out"
    if scenario.faults:
        yield "faults: vllm is not made to fail; leave them out"
