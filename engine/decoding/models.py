"""Load a causal language model from a local folder and run it over slot-addressed rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from transformers import PreTrainedModel

from specfleet.engine.decoding import llama
from specfleet.engine.decoding.admitted import check, known_positions
from specfleet.engine.decoding.aligned import AlignedCache
from specfleet.engine.decoding.attention import FEED, use_slots
from specfleet.engine.decoding.cache import CacheShape, RowCache, shape_of
from specfleet.engine.decoding.checkpoints import load_whole
from specfleet.engine.decoding.feed import Feed, Joined, Nodes
from specfleet.engine.decoding.folders import folder_of
from specfleet.engine.decoding.graphs import Graphs
from specfleet.engine.decoding.pages import reads_pages
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.quantised import BITS, quantised_layers
from specfleet.engine.decoding.slots import ROWS, TOKENS, SlotCache
from specfleet.engine.decoding.telemetry import keep_within_memory
from specfleet.fleet.errors import InputError

PRECISIONS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.bfloat16,  # of all but the weights of layers, see `quantised.py`
    "int4": torch.bfloat16,
}
CHUNK = 512  # prompt tokens a forward pass, so that a long prompt's mask stays small


class CausalLM:
    """A model in inference mode on one device.

    - `lean`: LLaMA types run by the lean forward pass of `llama.py`; False runs transformers' modules.
    - `graphs`: CUDA graphs of the lean pass, see `graphs.py`; None where there are none.
    - `layers`: of a lean model, if they are made already.
    """

    def __init__(self, model: torch.nn.Module, lean: bool = True, layers: Sequence[llama.Layer] | None = None) -> None:
        self.model = model.eval()
        self.config = model.config
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self.vocabulary = int(model.config.vocab_size)
        if self.device.type == "cuda":
            # Since torch 2.11 cuDNN is the first choice for attention in half precision on sm90, and builds a plan for
            # every new shape; here the width changes with every token.
            torch.backends.cuda.enable_cudnn_sdp(False)
        check(self.config)
        self.positions = known_positions(model)
        self.shape = shape_of(self.config)
        self.lean = lean and llama.is_lean(self.config)
        self.head = model.get_output_embeddings() if self.lean else make_head(model)
        self.graphs = Graphs() if self.device.type == "cuda" and self.lean else None
        if self.lean:
            body = model.model
            self.layers = [llama.fuse_layer(layer) for layer in body.layers] if layers is None else layers
            self.embed, self.norm = body.embed_tokens, body.norm.weight.data
            self.tables = [llama.Rotary(*torch.empty(2, 0))]  # of positions: graphs go on reading older ones
        else:
            self.body = find_body(model)
            use_slots(model)
            if self.dtype is torch.float64:
                model.set_experts_implementation("eager")  # the faster ways of experts do not support float64

    @property
    def name(self) -> str:
        """Its name in errors: its folder, or its type without a folder."""
        return str(getattr(self.config, "_name_or_path", "")) or f"model of type {self.config.model_type}"

    def new_cache(self, rows: int = ROWS, tokens: int = TOKENS, shape: CacheShape | None = None) -> SlotCache:
        """Return an empty cache for `rows` of `tokens` tokens; `shape`: of a head instead of the model."""
        shape = shape or self.shape
        whole = self.lean and all(layer.window is None for layer in self.layers)
        pages = whole and reads_pages(self.device, self.dtype, shape.size)
        return SlotCache(shape, self.dtype, self.device, rows, tokens, pages)

    def aligned_cache(self, shape: CacheShape | None = None) -> AlignedCache:
        """Return an empty cache of rows with a common end, for the batch rules that need that."""
        return AlignedCache(shape or self.shape, self.dtype, self.device)

    @torch.inference_mode()
    def feed(
        self,
        cache: RowCache,
        tags: Sequence[int],
        tokens: torch.Tensor,
        counts: Sequence[int],
        nodes: Nodes | None = None,
        taps: Sequence[int] = (),
    ) -> torch.Tensor:
        """Feed N `tokens` (N,), `counts` of each row of `tags` in turn; return their last hidden states (N, hidden).

        They follow the rows' committed tokens as a chain, or as tree `nodes`; the caller commits them. The hidden
        states are normed, as the language model's head reads them. The inputs of the layers `taps` come before them,
        side by side: (N, (taps + 1) x hidden) altogether.
        """
        return cache.fed(
            tags,
            counts,
            nodes,
            lambda begin, end, feed: self.forward(cache, tokens[begin:end], feed, taps),
            joins=self.lean,  # one eager pass: graphs of all runs of rows would be too many
        )

    def prefill(self, cache: RowCache, tag: int, tokens: Sequence[int], taps: Sequence[int] = ()) -> torch.Tensor:
        """Feed and commit `tokens` of one row; return their hidden states as `feed` does: (tokens, hidden)."""
        self.check_reach(cache.lengths[tag] + len(tokens))
        hidden = []
        for start in range(0, len(tokens), CHUNK):
            chunk = placed(tokens[start : start + CHUNK], self.device, torch.long)
            hidden.append(self.feed(cache, [tag], chunk, [len(chunk)], taps=taps))
            cache.lengths[tag] += len(chunk)
        return torch.cat(hidden)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits (..., vocabulary) of last hidden states (..., hidden)."""
        return self.head(hidden)

    @torch.inference_mode()
    def forward(self, cache: RowCache, tokens: torch.Tensor, feed: Feed | Joined, taps: Sequence[int]) -> torch.Tensor:
        """Run one pass over tokens (N,) with their feed, as `feed`; groups of rows join in a lean model's alone."""
        if not self.lean:
            assert isinstance(feed, Feed)
            cache.feed = replace(feed, mask=feed.visible)  # once for all layers
            FEED.set(cache.feed)
            output = self.body(
                input_ids=tokens[None],
                past_key_values=cache,
                use_cache=True,
                position_ids=self._known(feed.positions)[None],
                output_hidden_states=bool(taps),
            )
            states = [output.hidden_states[layer] for layer in taps]
            return torch.cat([*states, output.last_hidden_state], -1)[0] if taps else output.last_hidden_state[0]
        if len(self.tables[-1].cosines) < feed.width:
            self.tables.append(llama.rotary_table(self.model.model.rotary_emb, feed.width, self.embed.weight[:1]))
        lean_pass = partial(self._lean_pass, taps=taps)
        if self.graphs is None or isinstance(feed, Joined):
            return lean_pass(cache, tokens, feed)
        return self.graphs.run(lean_pass, cache, tokens, feed)  # a storage is one target's: its graphs have its taps

    def check_reach(self, tokens: int) -> None:
        """Raise InputError if a row would have more `tokens` than the model has positions."""
        if 0 < self.positions < tokens:
            raise InputError(
                f"{self.name}: a row of {tokens} tokens, and the model knows {self.positions} positions; shorten texts"
            )

    def _known(self, positions: torch.Tensor) -> torch.Tensor:
        """Return positions within the model's range: those of padding may lie beyond it."""
        return positions.clamp(max=self.positions - 1) if self.positions else positions

    def _lean_pass(
        self, cache: RowCache, tokens: torch.Tensor, feed: Feed | Joined, taps: Sequence[int]
    ) -> torch.Tensor:
        x = self.embed(tokens)
        tapped = dict.fromkeys(taps, x)
        x = llama.run_layers(self.layers, x, feed, cache, self.tables[-1], self.config, tapped=tapped)
        last = llama.norm(x, self.norm, self.config.rms_norm_eps)
        return torch.cat([*tapped.values(), last], -1) if taps else last


def find_body(model: PreTrainedModel) -> torch.nn.Module:
    """Return the decoder of a causal language model, which turns tokens into last hidden states."""
    named = model.get_decoder()  # some types name their head "decoder", others have none of that name
    return named if isinstance(named, PreTrainedModel) and named is not model else model.base_model


def make_head(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function from last hidden states (N, hidden) to logits (N, vocabulary) of a causal language model.

    It is the forward pass of the model's own class, with a decoder that returns the given states meanwhile. So it
    includes the scales and caps of logits of some types.
    """
    body = find_body(model)

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        body.forward = lambda *_, **__: _Output(hidden[None])
        try:
            return model(inputs_embeds=hidden[None], use_cache=False).logits[0]
        finally:
            del body.forward

    return logits


class _Output:
    """The output of a decoder for the class that reads it: last hidden states only."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, number: int) -> torch.Tensor:
        return (self.last_hidden_state,)[number]

    def __getattr__(self, name: str) -> None:
        return None


def load_model(
    name: str, role: str, precision: str = "float32", device: str = "", lean: bool = True, whole: bool = True
) -> CausalLM:
    """Load a model from a local folder, never from a hub.

    - `device`: cpu, cuda, ...; cuda if there is one when empty.
    - `whole`: False leaves out the layers of a lean model.
    """
    folder = folder_of(name, role)
    place = choose_device(device)
    keep_within_memory(place)
    model, layers = load_whole(folder, PRECISIONS[precision], whole), None
    if precision in BITS:
        if not llama.is_lean(model.config):
            types, own = ", ".join(sorted(llama.MODEL_TYPES)), model.config.model_type
            raise InputError(f"{folder}: precision = {precision!r} is for models of type {types}, and this is a {own}")
        layers = quantised_layers(model, precision, place)
    return CausalLM(model.to(place), lean, layers=layers)


def choose_device(device: str = "") -> torch.device:
    """Return the device of that name; cuda if there is one when empty."""
    return torch.empty(0, device=device or ("cuda" if torch.cuda.is_available() else "cpu")).device
