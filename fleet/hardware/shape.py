"""The shape of a model: the number and sizes of its layers, its parameters and its key-value cache."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=10**7)]
Some = Annotated[int, Meta(ge=0, le=10**7)]
CACHE_BYTES = 2  # of a number in a key-value cache of 16 bits


class ModelShape(msgspec.Struct, frozen=True):
    """A decoder of transformer layers, or an EAGLE head that drafts for one.

    Sizes are counts of numbers.

    - `experts`, `experts_used`: experts of a layer, each `intermediate` wide, and how many serve a token.
    - `dense_layers`: the first layers, which have no experts and are `dense_intermediate` wide.
    - `window`: context tokens that the `windowed_layers` attend to.
    - `norms`: norms of a layer, as wide as `hidden`.
    - `query_bias`, `output_bias`: biases of attention.
    """

    name: str
    layers: Count
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
    head: Literal["", "eagle", "eagle3"] = ""
    draft_vocabulary: Some = 0

    @property
    def attention_inputs(self) -> int:
        """Input width of attention's projections: an EAGLE-3 head reads a token's embedding and its features."""
        return 2 * self.hidden if self.head == "eagle3" else self.hidden

    @property
    def query_numbers(self) -> int:
        """Width of the queries of a layer."""
        return self.heads * self.head_dim

    @property
    def cache_numbers(self) -> int:
        """Width of the keys and values of a layer."""
        return 2 * self.kv_heads * self.head_dim

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
        """Input width of an EAGLE head's `fc`: features and embedding, or the features of three layers."""
        return {"": 0, "eagle": 2, "eagle3": 3}[self.head] * self.hidden

    def parameters(self) -> int:
        """Numbers in a checkpoint; what an EAGLE head shares with its target is not counted."""
        biases = self.query_bias * (self.query_numbers + self.cache_numbers) + self.output_bias * self.hidden
        norms = self.norms * self.hidden + 2 * self.head_dim * self.head_norms
        total = self.matrices() + self.layers * (biases + norms)
        if self.head == "eagle":
            return total
        if self.head == "eagle3":
            return total + self.hidden + self.hidden * self.head_outputs
        return total + self.hidden + self.hidden * self.vocabulary * (1 if self.tied else 2)

    def matrices(self) -> int:
        """Numbers in the matrices of the layers, which a precision shrinks; embedding and head keep 16 bits."""
        queries, cache = self.query_numbers, self.cache_numbers
        attention = self.attention_inputs * (queries + cache) + queries * self.hidden
        wide = sum(count * 3 * self.hidden * width for count, width in self.wide_layers)
        experts = self.experts * (3 * self.hidden * self.intermediate + self.hidden)
        experts += 3 * self.hidden * self.shared_intermediate
        return self.layers * attention + wide + self.expert_layers * experts + self.fused_inputs * self.hidden

    def cache_bytes_per_token(self, number_bytes: int = CACHE_BYTES) -> int:
        """Bytes of the keys and values of one token in all layers."""
        return self.layers * self.cache_numbers * number_bytes
