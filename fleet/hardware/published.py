"""Precisions of a published checkpoint, by the `quantization_config` of its config.json.

fleet/data/published/methods.toml has the precisions of all methods. What is not there is refused by key and value.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any, NoReturn

import msgspec

from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import shortened

KEY = "quantization_config"
WHOLE = 0.95  # share of a part's matrices that counts as all of them
EXPRESSION = re.compile(r"([\w.*-]*)(?:\(([\w|]+)\)([\w.*-]*))?(\$?)")  # names, .* and one choice (a|b)


class Numbers(msgspec.Struct, frozen=True):
    """How weights, inputs or a cache are written."""

    type: str
    num_bits: int
    group_size: int | None = None


class Group(msgspec.Struct, frozen=True):
    """Modules of one precision, by the keys of compressed-tensors."""

    weights: Numbers
    input_activations: Numbers | None = None
    targets: tuple[str, ...] = ("Linear",)


class Quantised(msgspec.Struct, frozen=True):
    """The keys of `quantization_config` that are read, of all methods; the lists name modules in 16 bits."""

    quant_method: str = ""
    quant_algo: str | None = None
    bits: int | None = None
    group_size: int | None = None
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    config_groups: dict[str, Group] = {}
    kv_cache_scheme: Numbers | str | None = None
    kv_cache_quant_algo: str | None = None
    modules_to_not_convert: list[str] | None = None
    ignored_layers: list[str] | None = None
    ignore: list[str] | None = None
    exclude_modules: list[str] | None = None
    llm_int8_skip_modules: list[str] | None = None


class _Table(msgspec.Struct, frozen=True):
    quantization_config: Quantised


def precisions_in(content: Mapping[str, Any], kind: str, sizes: Mapping[str, Any], origin: str) -> dict[str, str]:
    """Return `weights_in`, `mlp_in`, `experts_in` and `cache_in` of a checkpoint, as far as it is quantised.

    - `content`: its config.json, of which `kind` is the model type, and `sizes` those of the shape.

    Raises InputError, which begins with `origin`, for what has no precision here, or several in one part.
    """
    given = content.get(KEY) or content.get("compression_config")
    if not given:
        return {}
    table = convert({KEY: given}, _Table, origin).quantization_config
    for key in shipped_tables("published")["methods"]["refused"]["keys"]:
        if (value := given.get(key)) and not (isinstance(value, Mapping) and value.get("format") == "dense"):
            _refuse(origin, key, value, ("none",))
    precision, _, of_part = _precision(table, origin).partition(" of ")
    lists = (table.modules_to_not_convert, table.ignored_layers, table.ignore, table.exclude_modules)
    kept = _expression([name for names in (*lists, table.llm_int8_skip_modules) for name in names or ()], origin)
    found = {}
    for part, modules in _modules(kind, sizes).items():
        in_16_bits = sum(kept.match(name) is not None for name in modules) / len(modules)
        if of_part not in ("", part):
            in_16_bits = 1
        if 1 - WHOLE < in_16_bits < WHOLE:
            raise InputError(f"{origin}: {KEY}: {part} in bf16 and in {precision}; a part has one precision here")
        found[part] = "bf16" if in_16_bits >= WHOLE else precision
    rest, cache = found["attention"], _cache_in(table, origin)
    parts = {f"{part}_in": each for part, each in found.items() if each != rest}
    return cache | parts | ({} if rest == "bf16" else {"weights_in": rest})


def _refuse(origin: str, key: str, value: Any, allowed: Iterable[Any]) -> NoReturn:
    listed = ", ".join(map(str, allowed))
    raise InputError(f"{origin}: {KEY}.{key} = {shortened(value)} has no precision here; allowed: {listed}")


def _known(name: str, value: Any, origin: str, key: str) -> str:
    """Return what a table of methods.toml says of a value, which a key of the checkpoint gives."""
    table = shipped_tables("published")["methods"][name]
    if str(value) not in table:
        _refuse(origin, key, value, table)
    return str(table[str(value)])


def _precision(table: Quantised, origin: str) -> str:
    """Return the precision of all matrices, or that "of experts", by the method's own key."""
    method = table.quant_method.lower()
    key = "quant_algo" if table.quant_algo else _known("quant_method", method, origin, "quant_method")
    if key == "quant_algo":
        return _known(key, str(table.quant_algo).upper(), origin, key)
    if key == "load_in_4bit":
        return _known(key, f"{table.load_in_4bit}, load_in_8bit = {table.load_in_8bit}", origin, key)
    if key == "bits":
        said = _written("int", table.bits, table.group_size, 16)
    elif key == "config_groups":
        groups = list(table.config_groups.values())
        if [group.targets for group in groups] != [("Linear",)]:
            _refuse(origin, key, [group.targets for group in groups], ("one group, of all Linear",))
        weights, inputs = groups[0].weights, groups[0].input_activations
        said = _written(weights.type, weights.num_bits, weights.group_size, inputs.num_bits if inputs else 16)
    else:
        return key  # of methods with one precision
    return _known("weights", said, origin, key)


def _written(kind: str, bits: int | None, group: int | None, inputs: int) -> str:
    """Return how weights are written, as methods.toml has it; groups of 128 weights are the usual ones."""
    size = f" in groups of {group}" if bits == 4 and group not in (None, -1, 128) else ""
    return f"{kind} {bits}{size} with inputs of {inputs}"


def _cache_in(table: Quantised, origin: str) -> dict[str, str]:
    """Return the precision of the KV cache by the checkpoint, if any."""
    said = table.kv_cache_scheme or table.kv_cache_quant_algo
    if said is None:
        return {}
    told = f"{said.type} {said.num_bits}" if isinstance(said, Numbers) else said.upper()
    return {"cache_in": _known("cache", told, origin, "kv_cache_scheme")}


def _modules(kind: str, sizes: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the matrices of each part; of a layer's experts the first stands for all."""
    names = shipped_tables("published")["methods"]["modules"]
    layers, experts = sizes["layers"], sizes.get("experts", 0)
    dense = sizes.get("dense_layers", 0) if experts else layers
    attention = "latent" if sizes.get("latent") else "linear" if sizes.get("linear_layers") else "attention"
    parts = {"attention": (0, layers, attention), "mlp": (0, dense, "mlp")}
    if sizes.get("shared_intermediate"):  # these are MLPs as those of the first layers
        parts["mlp"] = (dense, layers, "shared_of_qwen" if kind.startswith("qwen") else "shared")
    parts["experts"] = (dense, layers, "experts_w" if kind in ("mixtral", "minimax_m2") else "experts")
    return {
        part: [f".model.layers.{layer}.{name}." for layer in range(first, last) for name in names[of_layer]]
        for part, (first, last, of_layer) in parts.items()
        if first < last
    }


def _expression(names: Iterable[str], origin: str) -> re.Pattern[str]:
    """Return what matches modules of names that are whole, by parts ("mlp.gate"), with *, or expressions after re:."""
    forms = []
    for name in names:
        plain = name.replace("\\.", ".").replace("language_model.", "")
        found = EXPRESSION.fullmatch(plain.removeprefix("re:").replace(".*", "*")) if "re:" in plain else None
        if plain.startswith("re:") and found is None:
            _refuse(origin, "ignore", name, ("names, with * or one choice (a|b) after re:",))
        before, choice, after, end = found.groups("") if found else (plain, "", "", "$")
        forms += [translate(f"*.{before}{each}{after}{'*' * (not end)}.*") for each in choice.split("|")]
    return re.compile("|".join(forms) or "(?!)")
