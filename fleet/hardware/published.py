"""Precisions of a published checkpoint, by the `quantization_config` of its config.json.

fleet/data/published/methods.toml has the precisions of all methods. What is not there is refused by key and value.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import shortened

KEY = "quantization_config"
WHOLE = 0.95  # share of a part's matrices that counts as all of them
MOST_REPEATS = 4  # in a name's expression: more could take long


class Numbers(msgspec.Struct, frozen=True):
    """How the weights or inputs of a module are written, by the keys of all methods."""

    num_bits: int | None = None
    type: str = ""
    group_size: int | None = None
    dtype: str | None = None
    quant_algo: str | None = None


class Group(msgspec.Struct, frozen=True):
    """Modules of one precision: by the keys of compressed-tensors, and of Quark (`weight`, `input_tensors`)."""

    targets: tuple[str, ...] = ("Linear",)
    weights: Numbers | None = None
    input_activations: Numbers | None = None
    weight: Numbers = Numbers()
    input_tensors: Numbers | None = None


class Quantised(msgspec.Struct, frozen=True):
    """The keys of `quantization_config`, of all methods; from `dynamic` on those that give modules another form."""

    quant_method: str = ""
    bits: int | None = None
    w_bit: int | None = None
    group_size: int | None = None
    quant_algo: str | None = None
    kv_cache_quant_algo: str | None = None
    kv_cache_scheme: Numbers | None = None
    quantized_layers: dict[str, Numbers] = {}
    config_groups: dict[str, Group] = {}
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    global_quant_config: Group = Group()
    quant_type: Any = None
    modules_to_not_convert: list[str] | None = None
    ignored_layers: list[str] | None = None
    ignore: list[str] | None = None
    exclude: list[str] | None = None
    exclude_modules: list[str] | None = None
    llm_int8_skip_modules: list[str] | None = None
    dynamic: Any = None
    extra_config: Any = None
    layer_quant_config: Any = None
    layer_type_quant_config: Any = None
    sparsity_config: Any = None


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
    fields = table.__struct_fields__
    first, last = fields.index("modules_to_not_convert"), fields.index("dynamic")
    for key in fields[last:]:
        if isinstance(other := getattr(table, key), dict) and other.get("format", other or "dense") != "dense":
            _refuse(origin, key, other, ("none",))
    kept = _chosen([name for key in fields[first:last] for name in getattr(table, key) or ()], origin)
    groups = [(_chosen(names, origin), precision) for names, precision in _rules(table, origin)]
    found: dict[str, str] = {}
    for part, modules in _modules(kind, sizes).items():
        counts = Counter(
            "bf16" if kept(name) else next((precision for fits, precision in groups if fits(name)), "bf16")
            for name in modules
        )
        ((found[part], most),) = counts.most_common(1)
        if most < WHOLE * len(modules):
            raise InputError(f"{origin}: {KEY}: {part} in {' and in '.join(counts)}; a part has one precision here")
    rest, cache = found["attention"], _cache_in(table, origin)
    parts = {f"{part}_in": each for part, each in found.items() if each != rest}
    return cache | parts | ({} if rest == "bf16" else {"weights_in": rest})


def _refuse(origin: str, key: str, value: Any, allowed: Iterable[Any]) -> NoReturn:
    listed = ", ".join(map(str, allowed))
    raise InputError(f"{origin}: {KEY}.{key} = {shortened(value)} has no precision here; allowed: {listed}")


def _known(key: str, value: Any, origin: str, where: str = "") -> str:
    """Return what a table of methods.toml says of a value; `where`: the key in errors, if another."""
    table = shipped_tables("published")["methods"][key]
    if str(value) not in table:
        _refuse(origin, where or key, value, table)
    return str(table[str(value)])


def _rules(table: Quantised, origin: str) -> list[tuple[Sequence[str], str]]:
    """Return names of modules with their precision, of which the first that fits counts, by the method's own keys."""
    how = "by quant_algo" if table.quant_algo else _known("quant_method", table.quant_method.lower(), origin)
    key = how.removeprefix("by ")
    if key == how:
        return [(("experts",) if how == "mxfp4" else ("Linear",), how)]
    if key == "config_groups":
        if not table.config_groups:
            _refuse(origin, key, {}, ("a group at least",))
        return [(group.targets, _of_group(group, name, origin)) for name, group in table.config_groups.items()]
    if key == "quant_algo" and str(table.quant_algo).upper() == "MIXED_PRECISION":
        names: dict[str, list[str]] = {}
        for name, layer in table.quantized_layers.items():
            names.setdefault(str(layer.quant_algo).upper(), []).append(name)
        return [(of_one, _known(key, algorithm, origin)) for algorithm, of_one in names.items()]
    return [(("Linear",), _known(key, _said(key, table), origin))]


def _said(key: str, table: Quantised) -> str:
    """Return what a method says of its precision, as methods.toml has it under a key."""
    if key == "bits":
        bits = table.bits if table.bits is not None else table.w_bit
        return f"{bits}" if bits == 8 or table.group_size in (None, -1) else f"{bits} in groups of {table.group_size}"
    if key == "load_in_4bit":
        return f"{table.load_in_4bit}, load_in_8bit = {table.load_in_8bit}"
    if key == "quant_type":
        kind = table.quant_type.get("default") if isinstance(table.quant_type, dict) else table.quant_type
        name = str(kind.get("_type") if isinstance(kind, dict) else kind)
        return name.lower().replace("_", "").removesuffix("config")
    if key == "global_quant_config":
        return (
            f"{table.global_quant_config.weight.dtype}{' with inputs' * bool(table.global_quant_config.input_tensors)}"
        )
    return str(table.quant_algo).upper()


def _of_group(group: Group, name: str, origin: str) -> str:
    """Return the precision of a group of compressed-tensors: by bits, kind and groups of weights, and by inputs."""
    weights, inputs = group.weights, group.input_activations
    if weights is None:
        return "bf16"
    is_large = weights.num_bits != 4 or weights.group_size in (None, -1, 128)
    size = "" if is_large else f" in groups of {weights.group_size}"
    said = f"{weights.num_bits} {weights.type}{size} with inputs of {inputs.num_bits if inputs else 16}"
    return _known("weights", said, origin, f"config_groups.{name}.weights")


def _cache_in(table: Quantised, origin: str) -> dict[str, str]:
    """Return the precision of the KV cache by the checkpoint, if any."""
    scheme, algorithm = table.kv_cache_scheme, (table.kv_cache_quant_algo or "NONE").upper()
    if scheme is not None and scheme.num_bits != 8:
        _refuse(origin, "kv_cache_scheme.num_bits", scheme.num_bits, (8,))
    if algorithm not in ("NONE", "FP8"):
        _refuse(origin, "kv_cache_quant_algo", algorithm, ("FP8",))
    return {"cache_in": "fp8"} if scheme is not None or algorithm == "FP8" else {}


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
        part: [f"model.layers.{layer}.{name}" for layer in range(first, last) for name in names[of_layer]]
        for part, (first, last, of_layer) in parts.items()
        if first < last
    }


def _chosen(names: Sequence[str], origin: str) -> Callable[[str], bool]:
    """Return whether names stand for a module: whole, by parts ("mlp.gate"), with *, or "re:" and an expression."""
    plain = {name.replace("language_model.", "") for name in names}
    exact = {name for name in plain if "*" not in name and not name.startswith("re:")}
    forms = []
    for name in sorted(plain - exact):
        if len(name) > 200 or len(re.findall(r"[*+{]", name)) > MOST_REPEATS or re.search(r"\)[*+?{]", name):
            _refuse(origin, "ignore", name, ("names, with *, or short expressions after re:",))
        form = rf"(?:.*\.)?{re.escape(name)}(?:\.|$)".replace(r"\*", ".*")
        forms.append(f"(?:{name[3:] if name.startswith('re:') else form})")
    try:
        expression = re.compile("|".join(forms) or "(?!)")
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{origin}: {KEY}.ignore: not a regular expression: {error}") from error

    def chosen(name: str) -> bool:
        steps = name.split(".") if exact else []
        runs = (".".join(steps[i:j]) for i in range(len(steps)) for j in range(i + 1, len(steps) + 1))
        return "Linear" in exact or expression.match(name) is not None or any(run in exact for run in runs)

    return chosen
