"""An estimated profile of a target and a drafter; every number has a label."""

from pathlib import Path

import msgspec
from msgspec import UNSET

from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.errors import InputError, MisfitError
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.operators import passes_of, reduces_of
from specfleet.fleet.hardware.passes import (
    Placed,
    block_roofline_of,
    check,
    precisions_of,
    product_s,
    rewrite_s,
    roofline_of,
    runs_as,
    states_roofline_of,
)
from specfleet.fleet.hardware.shape import ModelShape
from specfleet.fleet.hardware.shipped import device_of, engine_of, shape_of, shipped_case
from specfleet.fleet.hardware.tables import BRINGS, experts_of, tables_at
from specfleet.fleet.times.effects import USED, KvMemory
from specfleet.fleet.times.profile import POSITIONS, HardwareProfile
from specfleet.fleet.times.step_time import StepTime

FORM = (
    "MODEL@DEVICE, MODEL@4xDEVICE for tensor parallel 4, MODEL@DEVICE:fp8:kv-fp8 for precisions, and mlp-nvfp4 or "
    "experts-int4 for those of parts"
)
PADDED = 0.005  # share by which vocabularies of one tokenizer differ, since models pad them
PARTS = ("kv", "mlp", "experts")  # of a model that may have precisions of their own
LEFT_OUT = "assumed: none; estimates know steps alone"
RESERVED_BYTES = 3 * 2**30  # activations, CUDA graphs and libraries, on each device
NOTE = f"estimated: {USED:.0%} of the memory (vLLM's default), less weights and 3 GiB for activations (assumed)"


def estimate(
    target: str, draft: str | None = None, *, engine: str = "graphs", operators: str | Path = ""
) -> HardwareProfile:
    """Estimate the step times of a target and its drafter by rooflines; every number of the profile has a label.

    - `target`, `draft`: a model on a device: MODEL@DEVICE, MODEL@4xDEVICE for tensor parallel 4, MODEL@DEVICE:fp8 for
      its precision, by default that of its checkpoint, and MODEL@DEVICE:fp8:kv-fp8 for that of its KV cache, too;
      mlp-nvfp4 is that of its MLPs, experts-int4 that of its experts alone. A model is a shipped name or its name at a
      hub, or a config.json of transformers (or its folder). A device is a shipped name, or a TOML file of the same
      keys. Without `draft`, the profile has the target's model in both roles.
    - `engine`: graphs, eager, vllm, sglang or trtllm, or a file.
    - `operators`: a folder of the target's operators in LLMServingSim's form (GPU/MODEL/tpN), whose sums passes are.

    Raises InputError, one line with the allowed values, for unknown names and for combinations that do not fit.

    >>> import specfleet
    >>> profile = specfleet.estimate("llama-3.1-8b@h100", "eagle3-llama-3.1-8b@h100")
    >>> profile.sources["verify"]
    'estimated: roofline of llama-3.1-8b on h100, bf16, CUDA graphs, one pass'
    """
    drafting = None if draft is None else placed_of(draft, engine)
    placed = msgspec.structs.replace(placed_of(target, engine), operators=str(operators))
    return estimated_profile(placed, drafting)


def placed_of(text: str, engine: str = "graphs") -> Placed:
    """Place a model on devices by a text: "llama-3.1-8b@h100", "llama-3.1-70b@4xh100", "path/to/model@l40s:fp8".

    Raises InputError, one line with the allowed values, for an unknown model, device, engine or precision, and for
    combinations that do not fit.
    """
    model, at, where = text.rpartition("@")
    if not at or not model or not where:
        raise InputError(f"{text!r}: needs {FORM}")
    device, parallel = devices_in(text)
    stated, parts = _precisions(text, where.split(":")[1:])
    shape, host, accelerator = shape_of(model), engine_of(engine), device_of(device)
    weights, mlp, experts = (runs_as(each, accelerator) for each in (shape.weights_in, shape.mlp_in, shape.experts_in))
    own = {"mlp": mlp, "experts": experts, "kv": shape.cache_in}
    published = {part: precision for part, precision in own.items() if precision}
    if shape.quantised and model not in shipped_models():  # a shipped shape stands for other checkpoints, too
        _check_stated(text, shape, {"weights": stated} | parts)
        precision, parts = weights or "bf16", published | parts
    else:
        precision = stated or shape.weights_in or "bf16"
        parts = (published if not stated or shape.weights_in in ("", stated) else {}) | parts
    unlike = [f"{part}-{each}" for part, each in parts.items() if (part, each) != ("kv", "bf16")]
    written = ", ".join([precision, *unlike])
    written += " as published" if shape.quantised and not stated else ""
    named = f"{shape.name} on {f'{parallel} x ' if parallel > 1 else ''}{device}, {written}, {host.title}"
    cache = f"kv-{parts.get('kv', 'bf16')}"
    mlp, experts = parts.get("mlp", ""), parts.get("experts", "")
    made = _tabled(Placed(shape, accelerator, host, precision, parallel, named, cache, mlp, experts))
    check(made)
    return made


def _tabled(placed: Placed) -> Placed:
    """Return a model with the measured times of its experts, where tables have them."""
    of_experts = (placed.expert_precision, placed.device, placed.engine)
    return msgspec.structs.replace(placed, tabled=experts_of(placed.shape, placed.parallel, *of_experts))


def _check_stated(text: str, shape: ModelShape, stated: dict[str, str]) -> None:
    """Raise InputError for a stated precision of weights that is not the checkpoint's: no server quantises it again."""
    own = {"weights": shape.weights_in or "bf16", "mlp": shape.mlp_in, "experts": shape.experts_in}
    for part, precision in stated.items():
        if part != "kv" and precision and precision not in (own[part], *shape.quantised.split(", ")):
            raise InputError(
                f"{text!r}: the checkpoint of {shape.name} has its weights in {shape.quantised} (quantization_config), "
                f"and servers do not make {precision} of it; leave {precision} out, or name another checkpoint"
            )


def devices_in(place: str) -> tuple[str, int]:
    """Return the device of MODEL@DEVICE or MODEL@4xDEVICE, and how many of them share the model."""
    where = place.rpartition("@")[2].partition(":")[0]
    count, times, device = where.partition("x")
    device, parallel = (device, int(count[:9])) if times and count.isdecimal() else (where, 1)
    return shipped_case(device), parallel


def _experts_rest_on(placed: Placed) -> str:
    """Return what the times of a model's experts rest on; empty where no table is asked."""
    if placed.tabled is not None:
        return f"measured: {placed.tabled.source}"
    asked = placed.shape.experts and placed.device.tables and placed.expert_precision in placed.engine.tabled_experts
    return BRINGS if asked and tables_at() is None else ""


def beside(target: Placed, shape: ModelShape, precision: str = "", devices: int = 0) -> Placed:
    """Place a drafter on a target's device: split as the target where its heads allow, as vLLM splits it.

    `devices`: of the target's, that it is split over in place of all. Its drafts are part of the target's steps.
    Without a precision it has that of its checkpoint. One that the device cannot compute in is the target's; InputError
    where it is the checkpoint's.
    """
    one, engine = {0: "the target's device", 1: "one of the target's devices"}, target.engine
    precision, allowed = runs_as(precision or shape.weights_in or "bf16", target.device), precisions_of(target.device)
    if shape.quantised and precision not in allowed:
        raise MisfitError(
            f"{shape.name}: its checkpoint in {precision} does not run on {target.device.title}; allowed: "
            f"{', '.join(allowed)}"
        )
    made = msgspec.structs.replace(
        target,
        shape=shape,
        engine=msgspec.structs.replace(engine, step_s=engine.draft_s or engine.step_s),
        parallel=devices or shape.beside(target.parallel),
        precision=precision if precision in allowed else target.precision,
        named=f"{shape.name} on {one.get(devices) or f'{devices} of the devices of the target'}",
        mlp=runs_as(shape.mlp_in, target.device),
        experts=runs_as(shape.experts_in, target.device),
    )
    return _tabled(made)


def misfit(drafter: ModelShape, target: ModelShape) -> str:
    """Return why a drafter does not fit a target: a head's width, a tokenizer by its vocabulary; "" if it does."""
    if drafter.head and drafter.hidden != target.hidden:
        return f"drafter {drafter.name}: a head for hidden size {drafter.hidden}; {target.name} has {target.hidden}"
    if abs(drafter.vocabulary / target.vocabulary - 1) > PADDED:
        return (
            f"drafter {drafter.name}: its vocabulary has {drafter.vocabulary} tokens, that of {target.name} "
            f"{target.vocabulary}; a drafter needs the target's tokenizer"
        )
    return ""


def _precisions(text: str, asked: list[str]) -> tuple[str, dict[str, str]]:
    """Return the precision of the weights, "" if the text names none, and those of parts that it names."""
    split = [name.partition("-") for name in asked if name]
    parts = {part: precision for part, dash, precision in split if dash and part in PARTS}
    weights = [name for name in asked if name and name.partition("-")[0] not in PARTS]
    if len(weights) > 1 or len(weights) + len(parts) != len(split):
        raise InputError(f"{text!r}: needs one precision of weights, and one of the KV cache: {FORM}")
    return (weights or [""])[0], parts


def estimated_profile(target: Placed, draft: Placed | None = None) -> HardwareProfile:
    """Return the profile of a target and its drafter; without a drafter, the target's model in both roles.

    A draft is one pass, for each token or for a block, a verification one pass over all tokens; each has the overhead
    of its engine, of which a head's draft shares most with the target's step. A realignment rewrites both caches. The
    profile has no acceptance and no delays between steps; a scenario can set them. Raises InputError for a head as
    target, and for a head of another width.
    """
    if target.shape.head:
        raise InputError(f"target {target.shape.name}: a head only drafts; name the model that it drafts for")
    drafter = draft or target
    if drafter.shape.head and (why := misfit(drafter.shape, target.shape)):
        raise MisfitError(why)
    host = target.engine.of_mixtures() if target.shape.experts else target.engine
    row_s = host.row_s.value
    every, last = roofline_of(target), roofline_of(target, every_logit=False)
    if target.operators:
        every, last = passes_of(target)
    of_target = StepTime(base_s=host.step_s.value + row_s, per_row_s=row_s)
    one_pass = msgspec.structs.replace(of_target, roofline=every)
    step_s, rewritten_s = drafter.engine.step_s.value, rewrite_s(target) + rewrite_s(drafter)
    read = states_roofline_of(drafter) if drafter.shape.taps else roofline_of(drafter, every_logit=False)
    drafting = drafter.engine.draft_s if drafter.shape.head else None
    return HardwareProfile(
        name=f"{drafter.shape.name}-for-{target.shape.name}" if draft else target.shape.name,
        draft=_draft_of(drafter, drafting.value if drafting else step_s),
        verify=one_pass,
        decode=one_pass,
        one_pass=drafter.shape.block > 0 or UNSET,
        slots_less=int(drafter.shape.block > 0 and drafter.shape.head in ("eagle3", "dspark")) or UNSET,
        draft_prefill=StepTime(base_s=step_s, roofline=read),
        verify_prefill=msgspec.structs.replace(of_target, roofline=last),
        realign=StepTime(per_context_token_s=rewritten_s, per_row_context_s=rewritten_s),
        request_s=host.request_s.value,
        kv=kv_memory(target, drafter if draft else None),
        vocabulary=target.shape.vocabulary,
        hidden=drafter.shape.target_states,
        provenance={
            f"{POSITIONS} {role} {placed.shape.name}": str(placed.shape.positions)
            for role, placed in (("target", target), ("drafter", drafter))
            if placed.shape.positions
        },
        sources=_sources(target, drafter) | {"request_s": host.request_s.source},
    )


def kv_memory(target: Placed, drafter: Placed | None) -> KvMemory:
    """Return the memory of one of the target's devices; a drafter beside it is split as its heads allow."""
    memory_bytes = target.device.memory_bytes.value
    split = drafter.shape.beside(target.parallel) if drafter else 1
    if drafter and drafter.device == target.device:
        split = min(split, drafter.parallel)  # the fullest device limits the cache
    return KvMemory(
        free_bytes=USED * memory_bytes - RESERVED_BYTES - target.weights_bytes / target.parallel,
        memory_bytes=memory_bytes,
        token_bytes=target.token_bytes(target.parallel),
        drafter_bytes=drafter.weights_bytes / split if drafter else 0.0,
        drafter_token_bytes=drafter.token_bytes(split) if drafter else 0.0,
    )


def _draft_of(drafter: Placed, host_s: float) -> StepTime:
    """Return S(d): passes in turn, or one pass, after which DSpark chooses the tokens one by one."""
    shape = drafter.shape
    if not shape.block:
        return StepTime(base_s=host_s, roofline=roofline_of(drafter, in_turn=True))
    chosen_s = product_s(drafter, 1, shape.markov, shape.head_outputs / drafter.parallel, precision="bf16")
    return StepTime(base_s=host_s, per_token_s=chosen_s if shape.markov else 0.0, roofline=block_roofline_of(drafter))


def _sources(target: Placed, drafter: Placed) -> dict[str, str]:
    """Label every number of the profile, and list its input figures."""
    of_target, of_drafter = (
        f"estimated: roofline of {placed.named}{', experts measured' if placed.tabled else ''}"
        for placed in (target, drafter)
    )
    if target.operators:
        of_target = f"estimated: measured operators in {target.operators}, summed for {target.named}"
        if target.parallel > 1:
            reduced = reduces_of(target)
            of_target += f", all-reduces of {reduced.source}" if reduced else ", all-reduces estimated"
    read = "keys and values of hidden states" if drafter.shape.taps else "one pass, the last token scored"
    labels = {
        "draft": f"{of_drafter}, {'one pass for a block' if drafter.shape.block else 'a pass for each token'}",
        "verify": f"{of_target}, one pass",
        "decode": f"{of_target}, one pass",
        "draft_prefill": f"{of_drafter}, {read}",
        "verify_prefill": f"{of_target}, one pass, the last token scored",
        "realign": f"estimated: the caches of {target.shape.name} and {drafter.shape.name}, read and written once",
        "vocabulary": f"stated: {target.shape.name}",
        "hidden": f"stated: {target.shape.name}",
        "kv": NOTE,
        "provenance": "stated: max_position_embeddings of the models",
        "catch_up_s": LEFT_OUT,
        "overhead": LEFT_OUT,
        "link": LEFT_OUT,
    }
    figures: dict[str, Figure] = {}
    for role, placed in (("target", target), ("drafter", drafter)):
        if says := _experts_rest_on(placed):
            labels[f"{role}.experts"] = says
        figures |= {f"{role}.device.{name}": figure for name, figure in placed.device.figures().items()}
        figures |= {f"{role}.engine.{name}": figure for name, figure in placed.engine.figures().items()}
    return labels | {name: f"{figure.source} ({figure.value:g})" for name, figure in figures.items()}
