"""The roofline of one pass through a model: for each operator, the longer of memory and compute.

Weights are read once in a pass, for any number of tokens. Activations have 16 bits, and the key-value cache 16 or 8.
Products in 8 bits quantise their inputs first. Tensor parallelism splits each tensor evenly; an all-reduce follows
attention and the MLP.
"""

import math
from collections.abc import Mapping

import msgspec

from specfleet.fleet.errors import InputError, MisfitError
from specfleet.fleet.hardware.device import Accelerator, HostOverhead
from specfleet.fleet.hardware.shape import CACHE_BYTES, ModelShape
from specfleet.fleet.hardware.tables import Measured
from specfleet.fleet.times.roofline import AttentionTime, Roofline

ACTIVATION_BYTES = 2
WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2 / 128,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "int4g64": 0.5 + 2 / 64,
    "int4g32": 0.5 + 2 / 32,
    "w8a16": 1.0,
}  # int4: a 16-bit scale for 128 weights, or as many as g says; mxfp4 and nvfp4: an 8-bit one for 32 and for 16
CACHE_NUMBER_BYTES = {"kv-bf16": CACHE_BYTES, "kv-fp8": 1}
DIRECT = ("bf16", "fp16", "fp8", "int8")  # precisions of weights that are those of arithmetic
QUANTISED = ("fp8", "int8", "fp4")  # precisions of arithmetic that read activations of 8 bits or less
STATE_BYTES = 4  # of a number in the state of linear attention
CHUNK = 64  # tokens of a prompt for which linear attention writes one state
ROTATED = 2  # reads and writes of each query and key
MAX_TOKENS = 1 << 17
KNOTS_A_DOUBLING = 4


LARGE_BYTES = 70 * 2**30  # memory of a device from which vLLM's defaults are larger, but for an A100
LIMITS: Mapping[bool, Mapping[str, int]] = {
    True: {"max_num_seqs": 1024, "max_num_batched_tokens": 8192},
    False: {"max_num_seqs": 256, "max_num_batched_tokens": 2048},
}


class Placed(msgspec.Struct, frozen=True):
    """A model on devices: `parallel` of them share each tensor. `named`: the user's text.

    `cache`: precision of the key-value cache, a key of CACHE_NUMBER_BYTES. `mlp`, `experts`: precisions of all MLPs and
    of the experts alone, if they differ from that of the rest. `tabled`: measured times of a layer's experts.
    """

    shape: ModelShape
    device: Accelerator
    engine: HostOverhead
    precision: str = "bf16"
    parallel: int = 1
    named: str = ""
    cache: str = "kv-bf16"
    mlp: str = ""
    experts: str = ""
    operators: str = ""
    tabled: Measured | None = None

    @property
    def limits(self) -> Mapping[str, int]:
        """Limits of a step that vLLM has by default on these devices."""
        return LIMITS[self.device.memory_bytes.value >= LARGE_BYTES and "A100" not in self.device.title]

    @property
    def mlp_precision(self) -> str:
        """Precision of MLPs that are no experts."""
        return self.mlp or self.precision

    @property
    def expert_precision(self) -> str:
        """Precision of the experts."""
        return self.experts or self.mlp or self.shape.experts_in or self.precision

    @property
    def cache_bytes(self) -> int:
        """Bytes of a number in the key-value cache."""
        return CACHE_NUMBER_BYTES[self.cache]

    @property
    def weights_bytes(self) -> float:
        """Bytes of all weights on all devices; embedding, head and norms keep 16 bits."""
        shape, matrices = self.shape, self.shape.matrices()
        mlp_bytes = shape.dense_numbers * WEIGHT_BYTES[self.mlp_precision]
        expert_bytes = shape.expert_numbers * WEIGHT_BYTES[self.expert_precision]
        rest_bytes = (matrices - shape.dense_numbers - shape.expert_numbers) * WEIGHT_BYTES[self.precision]
        return mlp_bytes + expert_bytes + rest_bytes + (shape.parameters() - matrices) * ACTIVATION_BYTES

    def token_bytes(self, parallel: int) -> float:
        """Bytes of a token's keys and values on each of `parallel` devices; some hold the same heads, if those are few.

        What rows keep at any length is left out: windows, and the states of linear attention.
        """
        return self.shape.cache_bytes_per_token(self.cache_bytes) * self.shape.cache_share(parallel)

    @property
    def layer_s(self) -> float:
        """What an engine adds to a layer with experts on several devices."""
        tabled_s = self.engine.tabled_layer_s if self.tabled else None
        return (tabled_s or self.engine.mixture_layer_s).value if self.parallel > 1 else 0.0

    @property
    def memory_s_per_byte(self) -> float:
        """Time to read one byte at the bandwidth of matrix products."""
        return 1 / (self.device.bandwidth_share.value * self.device.bandwidth_bytes_per_s.value)

    def compute_s_per_operation(self, precision: str = "") -> float:
        """Time of one floating point operation at the rate of matrix products."""
        peak = self.device.compute[computes_in(precision or self.precision, self.device)]  # type: ignore[index]
        return 1 / (self.device.compute_share.value * peak.value)


def computes_in(precision: str, device: Accelerator) -> str:
    """Return the precision of arithmetic for weights of a precision: 16 bits for w8a16, and for 4-bit ones where a
    device has no fp4, 8 bits for mxfp4, which engines multiply with activations in fp8; 16 bits are fp16 where a device
    has no bf16."""
    if precision in WEIGHT_BYTES and precision not in DIRECT:
        as_int4 = precision not in ("mxfp4", "nvfp4") or "fp4" not in device.compute
        precision = "bf16" if as_int4 else "fp8" if precision == "mxfp4" else "fp4"
    return "fp16" if precision == "bf16" and "bf16" not in device.compute else precision


def runs_as(precision: str, device: Accelerator) -> str:
    """Return how a device runs a checkpoint's precision: without fp8 it computes in 16 bits, as engines do (Marlin)."""
    return "w8a16" if precision == "fp8" and "fp8" not in device.compute else precision


def precisions_of(device: Accelerator) -> list[str]:
    """List the weight precisions that a device supports."""
    return [name for name in WEIGHT_BYTES if computes_in(name, device) in device.compute]


def check(placed: Placed) -> None:
    """Raise InputError for an unsupported precision, heads that do not divide, or too little memory."""
    if placed.cache not in CACHE_NUMBER_BYTES:
        raise InputError(f"KV cache {placed.cache}: not known; allowed: {', '.join(CACHE_NUMBER_BYTES)}")
    shape, device, parallel = placed.shape, placed.device, placed.parallel
    allowed = precisions_of(device)
    for precision in (placed.precision, placed.mlp_precision, placed.expert_precision):
        if precision not in allowed:
            raise InputError(f"precision {precision}: not known for {device.title}; allowed: {', '.join(allowed)}")
    fits = [count for count in (1, 2, 4, 8, 16, 32, 64) if shape.heads % count == 0]
    if parallel not in fits:
        raise InputError(
            f"tensor parallel {parallel}: the {shape.heads} heads of {shape.name} cannot be split so; allowed: "
            f"{', '.join(map(str, fits))}"
        )
    if placed.weights_bytes > parallel * device.memory_bytes.value:
        enough = [count for count in fits if placed.weights_bytes <= count * device.memory_bytes.value]
        needs = f"needs {enough[0]} of them" if enough else "no number of them that its heads allow is enough"
        raise MisfitError(
            f"{shape.name} in {placed.precision}: weights of {placed.weights_bytes / 1e9:.4g} GB; {parallel} x "
            f"{device.title} has {parallel * device.memory_bytes.value / 1e9:.4g} GB; {needs}, or a smaller precision"
        )


def roofline_of(placed: Placed, *, every_logit: bool = True, in_turn: bool = False, alike: bool = False) -> Roofline:
    """Return the times of a model's passes.

    - `every_logit`: each token gets logits, not only the last of a prompt.
    - `in_turn`: a draft, of which the host launches every pass.
    - `alike`: all rows are copies of one request, as benchmarks send them, and use the same experts.
    """
    if alike:
        placed = msgspec.structs.replace(placed, tabled=None)  # measured rows were unlike
    engine, knots = placed.engine, range(int(math.log2(MAX_TOKENS)) * KNOTS_A_DOUBLING + 1)
    tokens = tuple(sorted({round(2 ** (knot / KNOTS_A_DOUBLING)) for knot in knots}))
    return Roofline(
        tokens=tokens,
        pass_s=tuple(products_s(placed, fed, fed if every_logit else 1, alike) for fed in tokens),
        attention=tuple(_attention(placed)),
        sharpness=placed.device.sharpness.value,
        host_s=max(engine.layer_s.value * placed.shape.layers, in_turn * engine.pass_s.value),
        in_turn=in_turn,
    )


def block_roofline_of(placed: Placed) -> Roofline:
    """Return the times of passes that draft a block each, by its tokens.

    For a token DFlash and DSpark feed a mask, and make keys and values of the states of one token that the target fed;
    a small model (PARD) and P-EAGLE feed a mask and that token itself.
    """
    passes, positions = roofline_of(placed, in_turn=True), 1 if placed.shape.taps else 2
    attention = (msgspec.structs.replace(kind, pair_s=positions * kind.pair_s) for kind in passes.attention)
    pass_s = (products_s(placed, positions * fed, fed) + states_s(placed, fed) for fed in passes.tokens)
    return msgspec.structs.replace(passes, pass_s=tuple(pass_s), attention=tuple(attention), in_turn=False)


def states_roofline_of(placed: Placed) -> Roofline:
    """Return the times of reading prompts by DFlash or DSpark, which make keys and values of the target's states."""
    passes = roofline_of(placed)
    return msgspec.structs.replace(
        passes, pass_s=tuple(states_s(placed, fed) for fed in passes.tokens), attention=(), host_s=0.0
    )


def states_s(placed: Placed, fed: float) -> float:
    """Return the time to make the keys and values of all layers of the hidden states of `fed` tokens; 0 if none are."""
    shape = placed.shape
    if not shape.taps:
        return 0.0
    made = shape.layers * shape.cache_numbers * shape.cache_share(placed.parallel)
    fused_s = product_s(placed, fed, shape.fused_inputs, shape.hidden)  # on every device
    return fused_s + product_s(placed, fed, shape.hidden, made) + kernel_s(placed.device, 2 * fed * made)


def product_s(
    placed: Placed,
    fed: float,
    inputs: float,
    outputs: float,
    weights: float = 0,
    precision: str = "",
    quantised: float | None = None,
) -> float:
    """Return the time of a matrix product over `fed` tokens, and of quantising its inputs to 8 bits.

    - `weights`: numbers read, if not inputs x outputs.
    - `quantised`: tokens whose inputs are quantised, if not `fed`.
    """
    number_bytes = WEIGHT_BYTES[precision or placed.precision]
    read_bytes = (weights or inputs * outputs) * number_bytes + fed * (inputs + outputs) * ACTIVATION_BYTES
    memory_s = read_bytes * placed.memory_s_per_byte
    compute_s = 2 * fed * inputs * outputs * placed.compute_s_per_operation(precision)
    sharpness = placed.device.sharpness.value
    own_s = placed.device.product_s.value + float((memory_s**sharpness + compute_s**sharpness) ** (1 / sharpness))
    if computes_in(precision or placed.precision, placed.device) not in QUANTISED:
        return own_s
    return own_s + quantising_s(placed.device, inputs * (fed if quantised is None else quantised))


def quantising_s(device: Accelerator, numbers: float) -> float:
    """Return the time to read 16-bit numbers and write 8-bit ones, without a launch: a kernel before does it."""
    return numbers * (ACTIVATION_BYTES + 1) / (device.kernel_share.value * device.bandwidth_bytes_per_s.value)


def kernel_s(device: Accelerator, numbers: float) -> float:
    """Return the time of a small kernel that reads and writes so many 16-bit numbers."""
    bandwidth = device.kernel_share.value * device.bandwidth_bytes_per_s.value
    return device.kernel_s.value + numbers * ACTIVATION_BYTES / bandwidth


def rewrite_s(placed: Placed) -> float:
    """Return the time to copy a token's keys and values of all layers within the device."""
    device = placed.device
    return 2 * placed.token_bytes(placed.parallel) / (device.kernel_share.value * device.bandwidth_bytes_per_s.value)


def all_reduce_s(placed: Placed, numbers: float) -> float:
    """Return the time of a ring all-reduce over the devices that share a model; 0 on one device.

    Each device sends to the next one at the bandwidth of its own link. More than two devices behind one host bridge
    share the bridge's bandwidth.
    """
    if placed.parallel == 1:
        return 0.0
    device, others, bridge = placed.device, placed.parallel - 1, placed.device.bridge_bytes_per_s
    sent_bytes = 2 * others / placed.parallel * numbers * ACTIVATION_BYTES
    if bridge is not None and placed.parallel > 2:
        return device.link_latency_s.value + placed.parallel * sent_bytes / bridge.value
    return device.link_latency_s.value + sent_bytes / (device.link_share.value * device.link_bytes_per_s.value)


def products_s(placed: Placed, fed: float, scored: float, alike: bool = False) -> float:
    """Return the time of a pass over `fed` tokens without attention; `scored` of them get logits; `alike` as above."""
    shape, device, parallel = placed.shape, placed.device, placed.parallel
    hidden, queries = shape.hidden, shape.query_numbers / parallel
    cache = shape.cache_numbers * shape.cache_share(parallel)
    attention_s = sum(product_s(placed, fed, *sizes) for sizes in shape.projections(parallel))
    attention_s += kernel_s(device, ROTATED * fed * (queries + cache / 2)) + device.product_s.value  # of attention
    norms_s = shape.norms * kernel_s(device, 4 * fed * hidden)  # a sum and a norm: two read, two written
    layers_s = shape.layers * (norms_s + 2 * all_reduce_s(placed, fed * hidden))
    layers_s += (shape.layers - shape.linear_layers) * attention_s
    if shape.linear_layers:
        mixed = (2 * shape.linear_keys + shape.linear_values) / parallel
        linear_s = sum(product_s(placed, fed, *sizes) for sizes in shape.linear_projections(parallel))
        linear_s += kernel_s(device, 4 * fed * mixed) + device.product_s.value  # convolution, and launch of the rule
        layers_s += shape.linear_layers * linear_s
    for count, width in shape.wide_layers:
        layers_s += count * mlp_s(placed, fed, width / parallel, placed.mlp_precision)
    if shape.expert_layers:
        layers_s += shape.expert_layers * (_experts_s(placed, fed, 1 if alike else fed) + placed.layer_s)
    if shape.head in ("eagle", "mtp"):  # other heads fuse features once in a draft, not once in a pass
        layers_s += product_s(placed, fed, shape.fused_inputs, hidden / parallel)
    head_s = product_s(placed, scored, hidden, shape.head_outputs / parallel, precision="bf16")
    gather_s = all_reduce_s(placed, scored * shape.head_outputs / parallel)
    return layers_s + head_s + gather_s + 2 * kernel_s(device, 2 * fed * hidden)  # embedding and last norm


def mlp_s(placed: Placed, fed: float, width: float, precision: str = "") -> float:
    """Return the time of a gated MLP of this width: gate and up in one product, the activation, down."""
    hidden = placed.shape.hidden
    up_s = product_s(placed, fed, hidden, 2 * width, precision=precision)
    return up_s + kernel_s(placed.device, 3 * fed * width) + product_s(placed, fed, width, hidden, precision=precision)


def distinct_experts(experts: int, used: int, fed: float) -> float:
    """Return the expected number of distinct experts of `fed` tokens, if each uses `used` at random."""
    return float(experts * (1 - (1 - used / experts) ** fed))


def _experts_s(placed: Placed, fed: float, unlike: float) -> float:
    """Return the time of a layer's experts, measured or by rooflines; only the experts of `unlike` tokens are read."""
    shape, precision = placed.shape, placed.expert_precision
    width, served = shape.intermediate / placed.parallel, fed * shape.experts_used
    read = distinct_experts(shape.experts, shape.experts_used, unlike) * shape.hidden * width
    router_s = product_s(placed, fed, shape.hidden, shape.experts, precision="bf16") + kernel_s(
        placed.device, 2 * fed * shape.experts
    )
    shared_s = 0.0
    if shape.shared_intermediate:
        shared_s = mlp_s(placed, fed, shape.shared_intermediate / placed.parallel, placed.mlp_precision)
    if placed.tabled is not None:
        return router_s + float(placed.tabled.at(fed)) + shared_s
    up_s = product_s(placed, served, shape.hidden, 2 * width, weights=2 * read, precision=precision, quantised=fed)
    down_s = product_s(placed, served, width, shape.hidden, weights=read, precision=precision)
    return router_s + up_s + kernel_s(placed.device, 3 * served * width) + down_s + shared_s


def _attention(placed: Placed) -> list[AttentionTime]:
    """Return the attention of windowed, full and linear layers. Few tokens of a row attend to the latent itself; from
    as many on as it saves, the latent is expanded first."""
    shape = placed.shape
    read_s = shape.cache_numbers * placed.cache_bytes * shape.cache_share(placed.parallel) * placed.memory_s_per_byte
    operation_s = placed.compute_s_per_operation("bf16") / placed.parallel
    pair, long_pair, long_from = 4 * shape.query_numbers, 1.0, 0
    if shape.latent:
        pair, expanded = 2 * shape.heads * (shape.cache_numbers + shape.latent), shape.head_dim + shape.value_dim
        long_pair = 2 * shape.heads * expanded / pair
        costs = 2 * shape.latent * shape.heads * (expanded - shape.rotary)
        long_from = math.ceil(costs / (pair * (1 - long_pair)))
    full = shape.layers - shape.windowed_layers - shape.linear_layers
    kinds = [
        AttentionTime(count * read_s, count * pair * operation_s, window, long_from, long_pair)
        for count, window in ((shape.windowed_layers, shape.window), (full, 0))
        if count
    ]
    if shape.linear_layers:
        state_s = shape.linear_layers * shape.state * STATE_BYTES / placed.parallel * placed.memory_s_per_byte
        kinds.append(AttentionTime(state_s, 0.0, window=1, long_from=CHUNK, long_write=1 / CHUNK))
    return kinds
