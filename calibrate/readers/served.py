"""A server as its records show it: step times from the time of a round, and a workload from the load."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from specfleet.calibration.readers.load import BLOCK, Load, Spread
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.positions import drafting_on, positions_of
from specfleet.fleet.hardware.profile import beside, estimated_profile, placed_of
from specfleet.fleet.hardware.shape import mtp_of
from specfleet.fleet.hardware.shipped import engine_of, shape_of
from specfleet.fleet.hardware.words import FOUND, MTP
from specfleet.fleet.scenario.arrivals import Poisson, Trace
from specfleet.fleet.scenario.lengths import Between, mean_tokens
from specfleet.fleet.scenario.scenario import FINDING, Drafters, Scenario, Verifiers, Workload
from specfleet.fleet.scenario.shared import SharedPrompts
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.mixed import drafting_s, pass_s
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.profile import STEPS, HardwareProfile, Server
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import Member, Step, StepKind
from specfleet.fleet.times.step_time import StepTime

REQUESTS = (64, 512)  # of the scenario, at least and at most, as far as they are drawn
ARRIVING, ANSWERED = 4096, 2 * 10**6  # at most where they arrive, since their rate is drawn, too; tokens of answers
ENOUGH_BUSY = 0.8  # share of the time, below which requests arrive by themselves
ROUNDED = 0.05  # share by which whole requests in flight miss the observed, from which they arrive by themselves
FAR = 2.0  # factor between a measured round and its estimate, from which a note asks for the device
DEEPER = 16  # tokens of the deepest draft that the lengths of a text leave room for
WAITED = 0.2  # requests that wait for each that runs
ROOM, FULL = 0.8, 0.9  # shares of the KV cache below which it has room, by lengths, and from which it is full
MOST_TOKENS, MOST_ROWS = 10**7, 10**4
MET = "so that the measured round is met (fitted)"
SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "kv_tokens")
Times = tuple[HardwareProfile | str, str]  # step times, inline or the name of a profile; and their source in words


def with_inferred(load: Load) -> Load:
    """Return the load with the limit that requests waited for: `kv_tokens` where the gauge says that the cache is full,
    else `max_num_seqs`; with a note alone where gauge and lengths contradict each other; as it is where few waited."""
    running, waiting = (load.running or 0.0) / load.engines, load.waiting or 0.0
    if load.max_num_seqs is not None or waiting < WAITED * running * load.engines or not running:
        return load
    prompt, new = (spread.mean if spread else 0.0 for spread in (load.prompt_tokens, load.new_tokens))
    room, share, says = load.kv_tokens or math.inf, load.kv_share or 0.0, ""
    is_full, limits, seqs = running * (prompt + new) >= ROOM * room, dict[str, int](), round(running)
    if share < FULL and not is_full:
        limits, says = {"max_num_seqs": seqs}, f"max_num_seqs = {seqs} is inferred: "
    elif share >= FULL and not load.kv_tokens and prompt + new:
        longer = 1 + (load.new_tokens.cv if load.new_tokens else 0.0) ** 2  # long answers run for longer
        held = round(running * (prompt * (1 - load.cached_share) + longer * new / 2) / share)
        limits, says = {"kv_tokens": held}, f"kv_tokens = {held} is inferred, as {share:.0%} of the KV cache was used: "
    elif share >= FULL and not is_full:
        says = f"the KV cache was {share:.0%} full by its gauge, with room by lengths, so no limit is inferred: "
    note = f"{says}{waiting:.3g} requests waited while {running * load.engines:.3g} ran"
    return msgspec.structs.replace(load, notes=(*load.notes, *[note] * bool(says)), **limits)


def inferred_profile(load: Load, engine: str = "vllm", drafts: tuple[int, int] = (0, 0)) -> HardwareProfile | None:
    """Return step times from the time of a round, drafts included; None where the load does not have it.

    - `drafts` (tokens): depth of the drafts and draft tokens of a row; with them, a plain step is not known.

    A prefill of L tokens takes a + b L. A round's mean contains n prompts of other rows: t = a + n b L where they share
    its step, t = a + n (a + b L) where the engine reads them alone. Two measured times give a and b.
    """
    round_s, rows = load.round_s, max((load.running or load.in_flight or 1.0) / load.engines, 1.0)
    if round_s is None:
        return None
    prompt, shared = load.prompt_tokens.mean if load.prompt_tokens else 0.0, load.prompts_per_round * (rows - 1) / rows
    prompt *= 1 - load.cached_share if load.whole_prompts else 1  # what is computed
    prefill_s, how = _prefill(load, round_s)
    others = shared / prompt if prompt else 0.0
    alone = others if engine_of(engine).prefill_first else 0.0
    base_s = (round_s - others * prefill_s) / (1 + alone - others) if others < 1 + alone else 0.0
    token_s = (prefill_s - base_s) / prompt if prompt and 0 < base_s < prefill_s else 0.0
    if not token_s:  # a prefill is as long as a round
        base_s = round_s / (1 + alone)
    step = StepTime(base_s=base_s)
    label = f"inferred: {load.ways[0].name} ({load.ways[0].label}), less the prompts in it; drafts included"
    source = "assumed: as long as a round, whatever its tokens"
    if token_s:
        source = f"inferred: {how}, less a round"
    return HardwareProfile(
        name="inferred",
        draft=StepTime(),
        verify=step,
        decode=StepTime() if any(drafts) else step,
        verify_prefill=StepTime(base_s=base_s, per_token_s=token_s),
        inferred_at=drafts,
        sources={"draft": "inferred: within verify", "verify": label, "decode": label, "verify_prefill": source},
    )


def fitted(profile: HardwareProfile, recording: Recording, engine: str) -> tuple[HardwareProfile, str]:
    """Return an estimated profile that meets the measured round, and how, in words; as it is without one.

    A longer round than the estimate's lengthens the drafts: their host time differs by an engine's version. Otherwise
    all steps take the same factor. docs/readers/README.md has the rounds of published servers that decided it.
    """
    load = recording.load
    if load is None or not (round_s := load.round_s):
        return profile, ""
    target_s, draft_s = _rounds(profile, recording, load, engine).tolist()
    factor = times = round_s / (target_s + draft_s)
    if of_drafts := draft_s > 0 and times > 1:
        factor = (round_s - target_s) / draft_s
    how = f"drafts x {factor:.2f}, the target as estimated, a round x {times:.2f}" if of_drafts else f"x {times:.2f}"
    how += f", at mean lengths and requests, {MET}"
    if not 1 / FAR < times < FAR:
        how += f"; a round takes {times:.2g} times its estimate: are models, device and precision those measured?"
    steps = {name: getattr(profile, name).slowed(factor) for name in (STEPS[:1] if of_drafts else STEPS)}
    sources = profile.sources | {name: f"{profile.sources[name]}; {how}" for name in steps}
    request_s = profile.request_s
    if load.ttft_s and load.prefill_s and load.waiting is not None and load.requests_per_s:
        left_s = load.ttft_s.mean - load.prefill_s.mean - load.waiting / load.requests_per_s
        request_s = min(request_s, max(left_s, 0.0))
        sources["request_s"] += "; at most TTFT less queue and prefill (inferred)"
    server = profile.server and msgspec.structs.replace(profile.server, slower=dict.fromkeys(steps, factor))
    return msgspec.structs.replace(profile, server=server, sources=sources, request_s=request_s, **steps), how


def _rounds(profile: HardwareProfile, recording: Recording, load: Load, engine: str) -> NDArray[np.float64]:
    """Return the mean times of target and drafter in a round of a load, with the prompts of other rows."""
    depth = recording.counts.depth if recording.counts else 0
    running = (load.running or load.in_flight or 1.0) / load.engines
    rows = max(min(round(running + is_open(load)), MOST_ROWS), 1)  # an arrival meets all that are there
    prompt, new = (round(spread.mean) if spread else 0 for spread in (load.prompt_tokens, load.new_tokens))
    read = round(prompt * (1 - load.cached_share if load.whole_prompts else 1))  # what is computed
    share = load.prompts_per_round * (rows - 1) / rows / read if read else 0.0  # of a round that reads a prompt
    target = VerifierTimes(0, profile.verify, profile.verify_prefill, profile.decode, Overhead())
    drafter = DrafterTimes(0, profile.draft, profile.draft_prefill, 0.0, IdleEffect(), Overhead())

    def step_s(decoding: Sequence[Member], read: int) -> NDArray[np.float64]:
        fed = [*decoding, Member(-1, 0, 0, prompt - read, read, 0, "prefill")] if read else decoding
        drafting = [*decoding, Member(-1, 0, 0, prompt, depth, read, of_prompt=True)] if read else decoding
        if not fed:
            return np.zeros(2)
        draft_s = drafting_s(drafter, Step(0, "draft", tuple(drafting)), [depth] * len(fed)) if depth else 0.0
        return np.array((pass_s(target, Step(0, "mixed", tuple(fed)), recording.shape), draft_s))

    kind: StepKind = "verify" if depth else "decode"
    decoding = [Member(tag, 0, 0, prompt + new // 2, depth, depth + 1, kind) for tag in range(rows)]
    beside = () if engine_of(engine).prefill_first else decoding
    return step_s(decoding, 0) + share * (step_s(beside, read) - step_s(beside, 0))


def _prefill(load: Load, round_s: float) -> tuple[float, str]:
    """Return the time of a prefill, and its source; 0 without one. Of TTFT the wait is left out: for a step of others,
    or half a one where requests arrive."""
    if load.prefill_s:
        return load.prefill_s.mean, "a prefill time"
    if load.limit is None or load.ttft_s is None:
        return 0.0, ""
    steps = {0: min(load.in_flight or 0.0, 1.0) / 2, 1: 0.0}.get(load.limit, 1.0)
    return max(load.ttft_s.quantiles["P50"] - steps * round_s, 0.0), "the median TTFT, less the wait for a step"


def estimated(target: str, draft: str, recording: Recording, engine: str, fit: bool) -> tuple[Times, list[str]]:
    """Return the times of a target, and of a drafter on its device, by rooflines; notes; InputError as `placed_of`.

    - `fit`: whether times meet the measured round.
    """
    placed, speculates = placed_of(target, engine), recording.counts is not None
    if speculates and not draft:
        raise InputError("--target of a server that speculates: needs --draft MODEL, lookup or suffix, beside it")
    if draft and not speculates:
        raise InputError(f"--draft {draft}: the record shows a server without speculation; leave it out")
    shape = mtp_of(placed.shape) if draft == MTP else shape_of(draft) if draft not in ("", *FOUND) else None
    profile = estimated_profile(placed, beside(placed, shape) if shape else None)
    new = recording.load.new_tokens if recording.load and speculates else None
    counted = round(recording.load.requests / (1 + new.cv**2)) if recording.load and new else 0  # Kish's
    server = Server(target, draft, engine, recording.model, requests=counted)
    profile = msgspec.structs.replace(profile, server=server)
    if draft in FOUND:  # on the host, while the device works
        profile = msgspec.structs.replace(profile, draft=StepTime(), draft_prefill=StepTime())
    profile, how = fitted(profile, recording, engine) if fit else (profile, "")
    load = recording.load
    text = sum(_high(spread) for spread in (load.prompt_tokens, load.new_tokens) if spread) if load and draft else 0
    profile, notes = drafting_on(profile, 1, text)
    what = f"estimated: {target}{f' and {draft}' if draft else ''}, rooflines{', ' if how else ''}{how}"
    return (profile, what), notes


def with_again(load: Load, draft: str) -> Load:
    """Return a load whose prefix hits lack the block that a head computes again, if the drafter is one."""
    is_head = draft == MTP or (draft not in ("", *FOUND) and shape_of(draft).head)
    return msgspec.structs.replace(load, again=BLOCK) if is_head else load


def is_open(load: Load) -> bool:
    """Whether requests arrive by themselves: as said, or as idle times, a mean of no whole number or scrapes show."""
    held, waits = load.in_flight or 0.0, (load.waiting or 0.0) > WAITED * (load.running or 0.0)
    varies = any(seen and abs(seen - held) > max(ROUNDED * held, 1) for seen in load.seen)  # 0: before a load
    is_between = load.limit is None and not waits and (varies or abs(max(round(held), 1) - held) > ROUNDED * held > 0)
    return load.limit == 0 or is_between or (load.busy_share is not None and load.busy_share < ENOUGH_BUSY)


def with_held(load: Load) -> Load:
    """Return a load with a note if requests are held in flight although the record does not say that they were."""
    if is_open(load) or load.limit is not None or not load.requests_per_s:
        return load
    if (load.waiting or 0.0) > (load.running or 0.0):
        note = "closed loop: the server was overloaded, so the rate that came is not known"
        return msgspec.structs.replace(load, notes=(*load.notes, note))
    rate = f"process=poisson --set workload.arrivals.per_s={load.requests_per_s:.4g}"
    note = "closed loop: settings change requests/s; to hold these: --set workload.streams=0 --set workload.arrivals."
    return msgspec.structs.replace(load, notes=(*load.notes, note + rate))


def within(load: Load, profile: HardwareProfile | str, depth: int) -> Load:
    """Return a load whose longest text fits the models and KV cache that served it, where buckets alone bound it."""
    depth, times = max(depth, DEEPER), profile if isinstance(profile, HardwareProfile) else None
    positions = positions_of([times], drafts=True) if times else {}
    rooms = [(most - depth, f"{model} has {most} positions") for model, most in positions.items() if most]
    if tokens := load.kv_tokens or (times.kv.tokens(True) if times and times.kv else 0):
        rooms.append((tokens - 2 * depth - BLOCK, f"the KV cache has {tokens} tokens"))
    room, why = min(rooms, default=(0, ""))
    lengths = [spread for spread in (load.prompt_tokens, load.new_tokens) if spread]
    means, highs = sum(spread.mean for spread in lengths), sum(map(_high, lengths))
    if len(lengths) < 2 or not means < room < highs:
        return load
    share = (room - means) / (highs - means)
    prompt, new = (msgspec.structs.replace(of, high=int(of.mean + share * (_high(of) - of.mean))) for of in lengths)
    note = f"longest prompt and answer: {prompt.high} and {new.high} tokens (assumed): {why}"
    note = f"{note}, and the record's bounds are wider"
    return msgspec.structs.replace(load, prompt_tokens=prompt, new_tokens=new, notes=(*load.notes, note))


def served(made: Scenario, load: Load, engine: str, server: Server | None, trace: str) -> tuple[Scenario, str]:
    """Return the scenario of a record as its server, and the source of its workload in words.

    Drafts are made on the target's device, or there are none; settings are those that are recorded.

    - `made`: with the lengths of single requests, where the record has them.
    - `engine`: a shipped one, which has the scheduler. `server`: of estimated times; its devices have vLLM's limits
      where the record has none. `trace`: file of arrivals, or empty.
    """
    replace = msgspec.structs.replace
    kind, draft = made.drafters.kind, server.draft if server else ""
    if draft in FINDING:
        kind = draft
    elif draft:
        shape = None if draft == MTP else shape_of(draft)
        kind = "eagle" if shape is None else "block" if shape.block else "eagle" if shape.head else "model"
    drafters = replace(made.drafters, place="target", kind=kind) if made.acceptance else Drafters(count=0)
    settings = dict(placed_of(server.target, engine).limits) if server else {}  # as a plan has them
    settings |= {name: value for name in SETTINGS if (value := getattr(load, name)) is not None}
    workload, said = _workload(load, made.workload, trace)
    settings |= {"prefill_first": engine_of(engine).prefill_first, "prefix_cache": workload.shared is not None}
    verifiers = replace(Verifiers(count=load.engines), **settings)
    return replace(made, drafters=drafters, verifiers=verifiers, workload=workload), said


def _workload(load: Load, recorded: Workload, trace: str) -> tuple[Workload, str]:
    if trace:
        return Workload(requests=len(load.arrivals), arrivals=Trace(trace)), f"{len(load.arrivals)} recorded arrivals"
    known = load.in_flight or load.running or None
    in_flight = max(round(known or 1), 1)
    workload = recorded
    if not recorded.lengths:
        fewest, most = REQUESTS
        if is_open(load) and load.new_tokens:
            most = max(most, min(ARRIVING, round(ANSWERED / load.new_tokens.mean)))
        prompt, new = _lengths(load)
        requests = min(max(load.requests or 16 * in_flight, fewest), max(most, 4 * in_flight))
        shared = SharedPrompts(share=load.shared_share) if load.shared_share else None
        workload = Workload(requests=requests, prompt_tokens=prompt, new_tokens=new, shared=shared)
    if load.requests_per_s and is_open(load):
        said = f"{load.requests_per_s:.4g} requests/s arrive, as observed"
        return msgspec.structs.replace(workload, arrivals=Poisson(per_s=load.requests_per_s)), said
    observed = f"observed {known:.4g}" if known is not None else "assumed: the record does not say"
    return msgspec.structs.replace(workload, streams=in_flight), f"{in_flight} requests in flight, {observed}"


def input_names(load: Load, workload: Workload, is_inferred: bool) -> tuple[str, ...]:
    """Return the names of the observed quantities that the scenario takes as input.

    - `is_inferred`: whether its step times come from the load.
    """
    is_input = {
        "prompt, tokens": load.prompt_tokens is not None,
        "answer, tokens": load.new_tokens is not None,
        "prefix hits, share": workload.shared is not None,
        "in flight": workload.arrivals is None,
        "requests/s": workload.arrivals is not None,
        "tokens a round": load.tokens_per_round > 1,
        "time of a round, ms": is_inferred,
    }
    return tuple(name for name in is_input if is_input[name])


def _lengths(load: Load) -> tuple[int | Between, int | Between]:
    """Return the lengths of prompts and answers; answers of the default length where the record has none."""
    new = _law(load.new_tokens) if load.new_tokens else Workload().new_tokens
    if load.prompt_tokens:
        return _law(load.prompt_tokens), new
    return max(round(load.prompts_per_token * mean_tokens(new)), 1), new


def _high(observed: Spread) -> float:
    """Return the longest length of its law; all are as long as the mean where they do not vary."""
    return min(observed.high, MOST_TOKENS) if observed.cv >= 0.01 else observed.mean


def _law(observed: Spread) -> int | Between:
    """Return a lognormal law of the observed mean and variation within the observed bounds."""
    low, high = max(int(observed.low), 1), int(_high(observed))
    if not low < observed.mean < high:
        return max(round(observed.mean), 1)
    mean = observed.mean
    for _ in range(8):  # truncation shifts the mean
        shifted = mean_tokens(Between(low, high, mean, min(observed.cv, 10.0)))
        mean = min(max(mean * observed.mean / shifted, low), high)
    return Between(low, high, mean, min(observed.cv, 10.0))
