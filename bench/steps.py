"""Times of steps of real model shapes, and of a head's drafts, with random weights, beside memory limit and estimate.

Caches are not filled by prompts: attention reads as many bytes whatever they hold. Each point is written as it comes,
and a rerun on the same device goes on after them. `--estimate DEVICE ...` measures nothing and prints what is expected.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig

from bench.harness import Aim, Options, Report, Row
from specfleet.calibration.loops import stretched
from specfleet.engine.decoding.cache import shape_of
from specfleet.engine.decoding.eagle import Eagle3Head, EagleDrafter
from specfleet.engine.decoding.grow import Drafts, no_drafts
from specfleet.engine.decoding.models import PRECISIONS, CausalLM
from specfleet.engine.decoding.pages import find_fault, reads_pages
from specfleet.engine.decoding.telemetry import free_bytes, host_facts, timed
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.content import Content
from specfleet.engine.node.drafts import drafts_of
from specfleet.experiments.console.printing import remark
from specfleet.fleet.data.shipped import shipped_files, shipped_models
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.hardware.profile import estimated_profile, placed_of
from specfleet.fleet.hardware.shipped import device_of
from specfleet.fleet.inputs.text import parse_json, read_lines

HEADS = {"eagle3-llama-3.1-8b": "llama-3.1-8b"}  # by what estimates need: their target
MODELS = ("llama-3.2-1b", "llama-3.1-8b", *HEADS, "qwen3-14b")
TOKENS, ROWS, CONTEXTS = (1, 3, 6), (1, 4, 16, 64), (256, 2048, 8192)
PROMPTS = (512, 2048)
REPEATS, COLD = 8, 3  # a shape is captured as a CUDA graph at its second pass
FREE = 0.9  # share of free memory that a cache may take
WITHIN, DRAFT_WITHIN = 1.25, 1.5  # of the memory limit, for one row: of few tokens, of a head
WAYS = ("pages", "masks")  # of attention; the first one that the device has is the engine's
COLUMNS = ("step", "tokens", "rows", "context", "ms", "from", "to", "no room")
KEYS = ("device", "torch", "model", "precision", "tiny", "attention", "step", "tokens", "rows", "context")


class Point(msgspec.Struct, frozen=True):
    """A step of a grid: what it does, fed tokens of each row, rows, and tokens of context."""

    step: str
    tokens: int
    rows: int
    context: int


OPTIONS: Options = {
    "--models": {"nargs": "*", "default": MODELS, "help": "shipped shapes"},
    "--precision": {"choices": list(PRECISIONS), "default": "bfloat16"},
    "--device": {"default": "", "help": "cpu or cuda; left out, cuda where there is one"},
    "--card": {"default": "", "help": "the shipped device that this is; left out, by its name"},
    "--estimate": {"nargs": "*", "default": [], "help": "shipped devices; prints their estimates alone"},
    "--tiny": {"action": "store_true", "help": "two layers of the shapes and few points, to try it"},
}


def study(options: argparse.Namespace) -> Report:
    """Measure every model's grid, or estimate it."""
    if options.estimate:
        points = [(model, point) for model in options.models for point in grid(model, False)]
        return Report({"estimated, ms": [expected(*place, options.estimate) for place in points]})
    place = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    facts = host_facts()
    device = facts["gpu"] if place.type == "cuda" else facts["processor"]
    card = "" if options.tiny else options.card or card_of(device)
    tables = {}
    for name in options.models:
        kept = Kept(options.out / f"{name}.jsonl")
        about = {
            "device": device, "torch": facts["torch"], "model": name, "precision": options.precision,
            "tiny": options.tiny,
        }  # fmt: skip
        rows = list(measured(name, place, options, kept, about))
        title = f"{name} on {device}, {options.precision}"
        by_masks = {point_of(row): row.get("ms") for row in rows if row["attention"] == "masks"}
        tables[title] = [beside(row, card, by_masks) for row in rows]
    return Report(tables, list(aims_of(tables)))


def grid(name: str, tiny: bool) -> Iterator[Point]:
    """Yield verifications, of which one fed token is plain decoding, and prefills; drafts of a head."""
    tokens, rows, contexts, prompts = ((1, 3), (1, 2), (64,), (32,)) if tiny else (TOKENS, ROWS, CONTEXTS, PROMPTS)
    if name in HEADS:
        yield from (Point("draft", tokens[-1], count, context) for context in contexts[:2] for count in rows)
        return
    for context, count, fed in product(contexts, rows, tokens):
        yield Point("verify" if fed > 1 else "decode", fed, count, context)
    for prompt in prompts:
        yield Point("prefill", prompt, 1, 0)


def measured(name: str, place: torch.device, options: argparse.Namespace, kept: "Kept", about: Row) -> Iterator[Row]:
    """Yield the points of a model's grid: kept ones, and others measured; the model is loaded for the first of them."""
    model: CausalLM | EagleDrafter | None = None
    dtype = PRECISIONS[options.precision]
    size = shape_of(config_of(name, options.tiny)).size
    ways = WAYS if reads_pages(place, dtype, size) else WAYS[1:]
    if place.type == "cuda" and len(ways) < len(WAYS):
        remark(f"{name}: no attention by pages: {find_fault(place, dtype, size)}")
    for point, attention in product(grid(name, options.tiny), ways):
        key = about | {"attention": attention} | msgspec.structs.asdict(point)
        row = kept.find(key)
        if row is None:
            if model is None:
                remark(f"{name}: random weights")
                model = random_model(name, place, dtype, options.tiny)
            fed = f"{point.tokens} tokens, {point.rows} rows, context {point.context}"
            remark(f"{name}: {point.step}, {fed}, attention by {attention}")
            row = key | step_ms(model, point, attention == "pages")
            kept.add(row)
        yield row


class Kept:
    """Rows in a file of JSON lines, by what was measured."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = read_lines(path) if path.exists() else ()
        self.rows: list[Row] = [parse_json(line, f"{path}, line {number}") for number, line in lines]

    def find(self, key: Row) -> Row | None:
        """Return the row of that device and point."""
        return next((row for row in self.rows if all(row.get(name) == key[name] for name in KEYS)), None)

    def add(self, row: Row) -> None:
        """Append a row, and write all."""
        self.rows.append(row)
        write_file(self.path, b"".join(msgspec.json.encode(each) + b"\n" for each in self.rows))


def config_of(name: str, tiny: bool) -> PretrainedConfig:
    """Return the configuration of a shipped shape; InputError for an unknown name."""
    if name not in shipped_models():
        raise InputError(f"--models {name}: does not ship; allowed: {', '.join(shipped_models())}")
    sizes: dict[str, Any] = {**shipped_models()[name], "pad_token_id": None, "eos_token_id": None, "bos_token_id": None}
    if tiny:
        sizes |= {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 128}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "draft_vocab_size": 64}
    if name in HEADS:
        sizes["model_type"] = "llama"
    return CONFIG_MAPPING[sizes["model_type"]](
        **{key: size for key, size in sizes.items() if key not in ("source", "parameters")}
    )


def random_model(name: str, place: torch.device, dtype: torch.dtype, tiny: bool) -> CausalLM | EagleDrafter:
    """Return a model of a shipped shape with random weights; a head beside a target of one layer."""
    config = config_of(name, tiny)
    with place:
        model = CausalLM(AutoModelForCausalLM.from_config(config, dtype=dtype))
        if name not in HEADS:
            return model
        head = Eagle3Head(
            config, (0, 0, 0), config.hidden_size, config.draft_vocab_size, model.model.get_input_embeddings()
        )
        head.token_ids = torch.arange(config.draft_vocab_size)
    return EagleDrafter(head.to(dtype), model)


def step_ms(model: CausalLM | EagleDrafter, point: Point, pages: bool) -> Row:
    """Return the median and the quartiles of a step in milliseconds; a reason where the device has no room.

    - `pages`: whether attention reads pages; else it has masks.
    """
    longest = point.context + (REPEATS + COLD + 1) * point.tokens + 1
    head, model = (model.head, model.model) if isinstance(model, EagleDrafter) else (None, model)
    shape = model.shape
    need = 2 * shape.layers * shape.heads * shape.size * point.rows * longest * model.dtype.itemsize
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # the caches of points before count as used
        if need > FREE * free_bytes(model.device):
            return {"no room": f"{need / 1e9:.1f} GB of cache"}
    cache = model.new_cache(point.rows, longest)
    cache.pages = pages
    if head is not None:
        times_s = drafts_s(EagleDrafter(head, model, cache=cache), point)
    else:
        times_s = (prefills_s if point.step == "prefill" else steps_s)(Target(model, cache=cache), point)
    low, middle, high = (1000 * float(np.quantile(times_s, level)) for level in (0.25, 0.5, 0.75))
    return {"ms": middle, "from": low, "to": high}


def steps_s(target: Target, point: Point) -> list[float]:
    """Return the seconds of verifications of equal drafts, on rows with a context that was never computed."""
    tags, device = list(range(point.rows)), target.model.device
    for tag in tags:
        target.open(tag, stretched([1, 2, 3], point.context + 1))
        target.cache.lengths[tag] = point.context
    draft = Content(stretched([5, 7], point.tokens - 1), None)
    drafts: Drafts = drafts_of([draft] * point.rows, device) if draft.tokens else no_drafts(point.rows, device)
    return [timed(lambda: target.verify(tags, drafts), device)[1] for _ in range(COLD + REPEATS)][COLD:]


def prefills_s(target: Target, point: Point) -> list[float]:
    """Return the seconds of prefills of one row."""

    def once() -> None:
        target.open(0, stretched([1, 2, 3], point.tokens))
        target.prefill(0)
        target.release(0)

    return [timed(once, target.model.device)[1] for _ in range(COLD + REPEATS)][COLD:]


def drafts_s(drafter: EagleDrafter, point: Point) -> list[float]:
    """Return the seconds of drafts, a pass a token, on rows with a context that was never computed."""
    tags = list(range(point.rows))
    for tag in tags:
        drafter.open(tag, stretched([1, 2, 3], point.context + 2))
        drafter.cache.lengths[tag] = point.context  # pairs: the last one is fed again in each draft
        drafter.features[tag] = drafter.head.embed_tokens.weight[:1]
    depths = [point.tokens] * point.rows
    return [timed(lambda: drafter.draft(tags, depths), drafter.device)[1] for _ in range(COLD + REPEATS)][COLD:]


def card_of(device: str) -> str:
    """Return the shipped device of a name such as "NVIDIA H100 80GB HBM3"; empty for none."""
    words = device.lower().replace("-", " ").split()
    fitting = [
        name
        for name in shipped_files("devices")
        if all(part in words or part in "".join(words) for part in name.split("-"))
    ]
    return max(fitting, key=len, default="")


def expected(model: str, point: Point, cards: Sequence[str]) -> Row:
    """Return what rooflines say of a point on each card, in milliseconds; None where the weights have no room."""
    return msgspec.structs.asdict(point) | {"model": model} | {card: estimated_ms(model, point, card) for card in cards}


def estimated_ms(model: str, point: Point, card: str) -> float | None:
    """Return the estimated time of a point in milliseconds; None where the weights have no room."""
    head = placed_of(f"{model}@{card}") if model in HEADS else None
    try:
        profile = estimated_profile(placed_of(f"{HEADS.get(model, model)}@{card}"), head)
    except InputError:
        device_of(card)  # it may be the card that is unknown
        return None
    law = {"prefill": profile.verify_prefill, "draft": profile.draft}.get(point.step, profile.verify)
    return 1000 * law.mean_s(point.tokens, point.context, point.rows, point.tokens * (point.rows - 1))


def limit_ms(model: str, point: Point, card: str) -> float:
    """Return the milliseconds of reading caches and weights at the stated bandwidth, once a step or a pass of a head.

    The weights are without the embedding, and without a head's `fc`, which reads the target's states.
    """
    placed, passes = placed_of(f"{model}@{card}"), point.tokens if model in HEADS else 1
    shape = placed.shape
    unread = shape.fused_inputs or (0 if shape.tied else shape.vocabulary)
    read_bytes = placed.weights_bytes - 2 * shape.hidden * unread
    read_bytes += point.rows * point.context * shape.cache_bytes_per_token()
    return 1000 * passes * read_bytes / placed.device.bandwidth_bytes_per_s.value


def point_of(row: Row) -> Point:
    """Return the point of a measured row."""
    return Point(row["step"], row["tokens"], row["rows"], row["context"])


def beside(row: Row, card: str, by_masks: Mapping[Point, float | None]) -> Row:
    """Return a measured row beside its time by masks, and beside limit and estimate where the device ships."""
    shown, point = {name: row[name] for name in ("attention", *COLUMNS) if name in row}, point_of(row)
    if row["attention"] == "pages" and "ms" in row and (masks := by_masks.get(point)):
        shown |= {"over masks": row["ms"] / masks}
    if not card or "ms" not in row:
        return shown
    limit, estimate = limit_ms(row["model"], point, card), estimated_ms(row["model"], point, card)
    shown |= {"limit, ms": limit, "over limit": row["ms"] / limit}
    return (
        shown if estimate is None else shown | {"estimated, ms": estimate, "error, %": 100 * (estimate / row["ms"] - 1)}
    )


def aims_of(tables: dict[str, list[Row]]) -> Iterator[Aim]:
    """Yield the bound of each model: verification of one row, or a head's draft, against the memory limit."""
    for title, rows in tables.items():
        of_engine = [row for row in rows if row["attention"] == rows[0]["attention"] and row["step"] != "prefill"]
        ratios = [row["over limit"] for row in of_engine if row["rows"] == 1 and row.get("over limit")]
        if ratios:
            most = DRAFT_WITHIN if rows[0]["step"] == "draft" else WITHIN
            yield Aim(f"{title}: one row over the memory limit, worst", max(ratios), most)
