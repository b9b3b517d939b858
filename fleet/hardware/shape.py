"""The shape of a model: the number and sizes of its layers, its parameters and its key-value cache."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specfleet.fleet.errors import MisfitError

MAX_LAYERS = 1000  # of a model; the deepest published ones have about 130
Count = Annotated[int, Meta(ge=1, le=10**7)]
Some = Annotated[int, Meta(ge=0, le=10**7)]
CACHE_BYTES = 2  # of a number in a key-value cache of 16 bits


class ModelShape(msgspec.Struct, frozen=True):
    """A decoder of transformer layers, or a head that drafts for one.

    Sizes are counts of numbers.

    - `experts`, `experts_used`: experts of a layer, each `intermediate` wide, and how many serve a token.
    - `dense_layers`: the first layers, which have no experts and are `dense_intermediate` wide.
    - `window`: context tokens that the `windowed_layers` attend to.
    - `weights_in`, `mlp_in`, `experts_in`, `cache_in`: precisions in which the matrices of all layers, those of MLPs,
      those of experts, and the KV cache are published; "" where nothing says so, for parts that of all layers.
    - `positions`: the longest text, in tokens; 0 if unknown.
    - `mtp_modules`: modules for multi-token prediction that the checkpoint brings, see `mtp_of`.
    - `norms`: norms of a layer, as wide as `hidden`.
    - `query_bias`, `output_bias`: biases of attention.
    - `gated`: attention's output has a gate, which the queries' projection computes.
    - `latent`, `rotary`: width of the latent that all heads share in place of keys and values, and of its rotated key.
    - `query_latent`, `value_dim`: width of the queries' latent, and of a head's values (multi-head latent attention).
    - `linear_layers`: layers whose attention keeps a state in place of a cache: `linear_keys` and `linear_values` wide,
      with `state` numbers for each row.
    - `block`: most tokens that it drafts in one pass; 0 for drafters of chains.
    - `taps`: layers of the target from which DFlash and DSpark read hidden states. `markov`: rank of DSpark's bias by
      the token before.
    - `small`: numbers of a layer in biases and vectors that the other sizes leave out.
    """

    name: str
    layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate: Count
    vocabulary: Count
    tied: bool = False
    query_bias: bool = False
    output_bias: bool = False
    head_norms: bool = False
    norms: Count = 2
    experts: Some = 0
    experts_used: Some = 0
    shared_intermediate: Some = 0
    dense_layers: Some = 0
    dense_intermediate: Some = 0
    window: Some = 0
    windowed_layers: Some = 0
    head: Literal["", "eagle", "eagle3", "mtp", "dflash", "dspark"] = ""
    block: Some = 0
    taps: Some = 0
    markov: Some = 0
    draft_vocabulary: Some = 0
    weights_in: str = ""
    mlp_in: str = ""
    experts_in: str = ""
    cache_in: str = ""
    positions: Annotated[int, Meta(ge=0, le=10**9)] = 0
    mtp_modules: Annotated[int, Meta(ge=0, le=MAX_LAYERS)] = 0
    gated: bool = False
    latent: Some = 0
    rotary: Some = 0
    query_latent: Some = 0
    value_dim: Some = 0
    linear_layers: Some = 0
    linear_keys: Some = 0
    linear_values: Some = 0
    state: Some = 0
    small: Annotated[int, Meta(ge=0, le=10**9)] = 0

    @property
    def quantised(self) -> str:
        """Precisions in which the weights are published, if they have fewer than 16 bits: "int4", "mxfp4"."""
        parts = (self.weights_in, self.mlp_in, self.experts_in)
        return ", ".join(dict.fromkeys(part for part in parts if part not in ("", "bf16")))

    @property
    def attention_inputs(self) -> float:
        """Mean input width of attention's projections: an EAGLE-3 head's first layer reads features and embedding."""
        return self.hidden * (1 + 1 / self.layers) if self.head == "eagle3" else self.hidden

    @property
    def query_numbers(self) -> int:
        """Width of the queries of a layer."""
        return self.heads * self.head_dim

    @property
    def cache_numbers(self) -> int:
        """Width of what a layer keeps of a token: keys and values, or the latent and its rotated key."""
        return self.latent + self.rotary if self.latent else 2 * self.kv_heads * self.head_dim

    def beside(self, parallel: int) -> int:
        """Devices that share a drafter beside a target on `parallel` devices: all, if its heads allow it, else one."""
        return 1 if self.heads % parallel else parallel

    def cache_share(self, parallel: int) -> float:
        """Share of the cache on each of `parallel` devices: heads are split as far as they go, a latent is not."""
        return 1.0 if self.latent else max(1 / parallel, 1 / self.kv_heads)

    def projections(self, parallel: int = 1) -> list[tuple[float, float]]:
        """Inputs and outputs of the projections of a layer with attention, on each of `parallel` devices."""
        queries = self.query_numbers / parallel
        if not self.latent:
            cache = self.cache_numbers * self.cache_share(parallel)
            return [(self.attention_inputs, (1 + self.gated) * queries + cache), (queries, self.hidden)]
        heads = self.heads / parallel
        expanded = heads * (self.head_dim - self.rotary + self.value_dim)
        return [
            (self.attention_inputs, self.query_latent + self.cache_numbers),
            (self.query_latent, queries),
            (self.latent, expanded),
            (heads * self.value_dim, self.hidden),
        ]

    def linear_projections(self, parallel: int = 1) -> list[tuple[float, float]]:
        """Inputs and outputs of the projections of a layer with a state: queries, keys, values and gates; output."""
        values = self.linear_values / parallel
        return [(self.hidden, 2 * self.linear_keys / parallel + 2 * values), (values, self.hidden)]

    @property
    def expert_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def wide_layers(self) -> tuple[tuple[int, int], ...]:
        """Layers without experts: their number and width."""
        if not self.experts:
            return ((self.layers, self.intermediate),)
        return ((self.dense_layers, self.dense_intermediate),) if self.dense_layers else ()

    @property
    def head_outputs(self) -> int:
        """Size of the vocabulary of the output head."""
        return self.draft_vocabulary or self.vocabulary

    @property
    def fused_inputs(self) -> int:
        """Input width of a head's `fc`: features and embedding, or the features of several layers."""
        return {"": 0, "eagle": 2, "mtp": 2, "eagle3": 3}.get(self.head, self.taps) * self.hidden

    @property
    def target_states(self) -> int:
        """Numbers of a target's hidden states of a token that a head reads: for EAGLE-3 those of three layers."""
        return {"": 0, "eagle3": 3}.get(self.head, self.taps or 1) * self.hidden

    def parameters(self) -> int:
        """Numbers in a checkpoint; what an EAGLE head shares with its target is not counted."""
        biases = self.query_bias * (self.query_numbers + self.cache_numbers) + self.output_bias * self.hidden
        norms = self.norms * self.hidden + 2 * self.head_dim * self.head_norms
        total = self.matrices() + self.layers * (biases + norms + self.small)
        if self.head in ("eagle", "mtp"):
            return total
        if self.taps:
            return total + 2 * self.hidden + 2 * self.markov * self.head_outputs
        if self.head == "eagle3":
            return total + self.hidden + self.hidden * self.head_outputs
        return total + self.hidden + self.hidden * self.vocabulary * (1 if self.tied else 2)

    def matrices(self) -> int:
        """Numbers in the matrices of the layers, which a precision shrinks; embedding and head keep 16 bits."""
        full = (self.layers - self.linear_layers) * sum(int(inputs * outputs) for inputs, outputs in self.projections())
        linear = self.linear_layers * sum(int(inputs * outputs) for inputs, outputs in self.linear_projections())
        routers = self.expert_layers * self.experts * self.hidden
        return full + linear + self.dense_numbers + self.expert_numbers + routers + self.fused_inputs * self.hidden

    @property
    def expert_numbers(self) -> int:
        """Numbers in the matrices of the experts of all layers, without shared ones."""
        return self.expert_layers * self.experts * 3 * self.hidden * self.intermediate

    @property
    def dense_numbers(self) -> int:
        """Numbers in the matrices of all other MLPs."""
        wide = sum(count * 3 * self.hidden * width for count, width in self.wide_layers)
        return wide + self.expert_layers * 3 * self.hidden * self.shared_intermediate

    def cache_bytes_per_token(self, number_bytes: int = CACHE_BYTES) -> int:
        """Bytes that one token adds to the cache of a long text; layers with a window or a state add nothing."""
        growing = self.layers - self.linear_layers - self.windowed_layers
        return (growing or self.layers) * self.cache_numbers * number_bytes


def mtp_of(shape: ModelShape) -> ModelShape:
    """Return the head that a model's own module for multi-token prediction is: a layer of the model with attention.

    With several modules, one drafts each token, so a pass has one of them. Raises MisfitError for a model without any.
    """
    if not shape.mtp_modules:
        raise MisfitError(
            f"mtp: {shape.name} has no module for multi-token prediction (num_nextn_predict_layers, "
            "mtp_num_hidden_layers or num_mtp_modules in its config.json); give another drafter"
        )
    return msgspec.structs.replace(
        shape, name=f"{shape.name}-mtp", layers=1, head="mtp", norms=shape.norms + 3, mtp_modules=0, dense_layers=0,
        windowed_layers=0, linear_layers=0,
    )  # fmt: skip
