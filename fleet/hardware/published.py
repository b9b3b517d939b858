"""Precisions of a published checkpoint, by the `quantization_config` of its config.json.

fleet/data/published/methods.toml has the precisions of all methods. What is not there is refused by key and value.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any, NoReturn

from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import shortened

KEY = "quantization_config"
WHOLE = 0.95  # share of a part's matrices that counts as all of them
NAME = r"((?:[\w.*-]|\[\w+\])*)"
EXPRESSION = re.compile(rf"{NAME}(?:\(([\w|]+)\){NAME})?(\$?)")  # names, .*, letters [ab] and one choice (a|b)
FUSED = {"qkv_proj": "[qkv]_proj", "gate_up_proj": "[gu]*_proj"}  # matrices that engines multiply as one


def precisions_in(content: Mapping[str, Any], kind: str, sizes: Mapping[str, Any], origin: str) -> dict[str, str]:
    """Return `weights_in`, `mlp_in`, `experts_in` and `cache_in` of a checkpoint, as far as it is quantised.

    - `content`: its config.json, of which `kind` is the model type, and `sizes` those of the shape.

    Raises InputError, which begins with `origin`, for what has no precision here, or several in one part.
    """
    given = content.get(KEY) or content.get("compression_config")
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{origin}: {KEY} = {shortened(given)}; needs a table")
    keys = shipped_tables("published")["methods"]["keys"]
    for key in keys["refused"]:
        if (value := given.get(key)) and _at(value, "format") != "dense":
            _refuse(origin, key, value, ("none",))
    precision, _, of_part = _precision(given, origin).partition(" of ")
    kept = _expression({key: given.get(key) or [] for key in keys["kept"]}, origin)
    found, every = dict[str, str](), _modules(kind, sizes)
    if of_part and of_part not in every:
        _refuse(origin, "quant_method", given["quant_method"], ("a model with experts",))
    for part, modules in every.items():
        in_16_bits = sum(kept.match(name) is not None for name in modules) / len(modules)
        if of_part not in ("", part):
            in_16_bits = 1
        if 1 - WHOLE < in_16_bits < WHOLE:
            raise InputError(f"{origin}: {KEY}: {part} in bf16 and in {precision}; a part has one precision here")
        found[part] = "bf16" if in_16_bits >= WHOLE else precision
    rest = found["attention"]
    made = {f"{part}_in": each for part, each in found.items() if each != rest}
    if cache := given.get("kv_cache_scheme") or given.get("kv_cache_quant_algo"):
        said = f"{cache.get('type')} {cache.get('num_bits')}" if isinstance(cache, Mapping) else str(cache).upper()
        made["cache_in"] = _known("cache", said, origin, "kv_cache_scheme")
    return made | ({} if rest == "bf16" else {"weights_in": rest})


def _refuse(origin: str, key: str, value: Any, allowed: Iterable[Any]) -> NoReturn:
    listed = ", ".join(map(str, allowed))
    raise InputError(f"{origin}: {KEY}.{key} = {shortened(value)} has no precision here; allowed: {listed}")


def _known(name: str, value: Any, origin: str, key: str) -> str:
    """Return what a table of methods.toml says of a value, which a key of the checkpoint gives."""
    table = shipped_tables("published")["methods"][name]
    if str(value) not in table:
        _refuse(origin, key, value, table)
    return str(table[str(value)])


def _at(value: Any, *keys: str) -> Any:
    """Return what tables in tables hold under keys; None where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _precision(given: Mapping[str, Any], origin: str) -> str:
    """Return the precision of all matrices, or that "of experts", by the method's own key."""
    method = str(given.get("quant_method", "")).lower()
    key = "quant_algo" if given.get("quant_algo") else _known("quant_method", method, origin, "quant_method")
    if key == "quant_algo":
        return _known(key, str(given.get(key)).upper(), origin, key)
    if key == "load_in_4bit":
        return _known(key, f"{given.get(key)}, load_in_8bit = {given.get('load_in_8bit', False)}", origin, key)
    if key == "bits":
        return _known("weights", _written("int", given.get(key), given.get("group_size"), 16), origin, key)
    if key != "config_groups":
        return key  # of methods with one precision
    groups = list(given[key].values()) if isinstance(given.get(key), Mapping) else []
    if [_at(group, "targets") or ["Linear"] for group in groups] != [["Linear"]]:
        _refuse(origin, key, given.get(key), ("one group, of all Linear",))
    kind, bits, group = (_at(groups[0], "weights", each) for each in ("type", "num_bits", "group_size"))
    inputs = _at(groups[0], "input_activations", "num_bits")
    return _known("weights", _written(kind, bits, group, 16 if inputs is None else inputs), origin, key)


def _written(kind: Any, bits: Any, group: Any, inputs: Any) -> str:
    """Return how weights are written, as methods.toml has it; groups of 128 weights are the usual ones."""
    size = f" in groups of {group}" if bits == 4 and group not in (None, -1, 128) else ""
    return f"{kind} {bits!r}{size} with inputs of {inputs!r}"


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


def _expression(names: Mapping[str, Any], origin: str) -> re.Pattern[str]:
    """Return what matches modules by lists of names: whole, by parts ("mlp.gate"), with *, or expressions after re:."""
    forms = []
    lists = {key: listed if isinstance(listed, list) else [listed] for key, listed in names.items()}
    for key, name in ((key, name) for key, listed in lists.items() for name in listed):
        plain = str(name).replace("\\.", ".").replace("language_model.", "")
        for fused, each in FUSED.items():
            plain = plain.replace(fused, each)
        is_expression = plain.startswith("re:")
        found = EXPRESSION.fullmatch(plain[3:].lstrip("^").replace(".*", "*")) if is_expression else None
        if not isinstance(name, str) or (is_expression and found is None):
            _refuse(origin, key, name, ("names, with * or, after re:, with .*, [ab] and one choice (a|b)",))
        before, choice, after, end = found.groups("") if found else (plain, "", "", "$")
        forms += [translate(f"*.{before}{each}{after}{'*' * (not end)}.*") for each in choice.split("|")]
    return re.compile("|".join(forms) or "(?!)")
