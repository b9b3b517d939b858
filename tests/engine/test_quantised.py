"""Weights of 8 bits: decoding is lossless for the quantised model, and what cannot be had is refused in a line."""

import sys
from types import SimpleNamespace

import pytest
import torch

from bench.speculative import decode_plain, decode_speculatively
from specfleet.engine.decoding import models
from specfleet.engine.decoding.checkpoints import load_whole
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.folders import folder_of
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.quantised import MATRICES, quantised_layers
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.errors import InputError

CPU = torch.device("cpu")
PROMPTS = [[(7 * place + 3 * row) % 200 + 5 for place in range(30)] for row in range(3)]


def rounded(layer: torch.nn.Linear, _config: object) -> None:
    """What torchao's `quantize_` does to a layer, but numbers keep their type: 255 values a row."""
    step = layer.weight.data.abs().amax(1, keepdim=True) / 127
    layer.weight = torch.nn.Parameter((layer.weight.data / step).round() * step, requires_grad=False)


@pytest.fixture(params=["pretended", "torchao"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torchao":
        pytest.importorskip("torchao")
    else:
        own = SimpleNamespace(Int8WeightOnlyConfig=object, Int4WeightOnlyConfig=object, quantize_=rounded)
        monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace(quantization=own))
        monkeypatch.setitem(sys.modules, "torchao.quantization", own)
    return str(request.param)


@pytest.mark.usefixtures("library")
def test_speculation_says_what_the_quantised_model_says() -> None:
    """In float32: bfloat16, which the key `precision` gives to all else, has near-ties."""
    whole, drafter = load_model("demo", "target"), Drafter(load_model("demo", "drafter"))
    model = load_whole(folder_of("demo", "target"), torch.float32)
    target = Target(CausalLM(model, layers=quantised_layers(model, "int8", CPU)))
    apart = []
    for prompt in PROMPTS:
        wanted = decode_plain(target, prompt, 30)
        assert decode_speculatively(target, drafter, prompt, 30, 4)[0] == wanted
        logits = []
        for each in (target.model, whole):
            cache = each.new_cache()
            cache.open(0)
            logits.append(each.logits(each.prefill(cache, 0, prompt)))
        apart.append(float((logits[0] - logits[1]).std() / logits[1].std()))
    assert 1e-4 < max(apart) < 0.02


def test_the_key_gives_quantised_weights(library: str) -> None:
    model = load_model("demo", "target", "int8", "cpu")
    assert model.dtype == torch.bfloat16
    assert not any(".layers." in name for name, _ in model.model.named_parameters())  # the 16 bits are gone
    if library == "torchao":
        weights = [getattr(layer, name) for layer in model.layers for name in MATRICES]
        assert {weight.qdata.dtype for weight in weights} == {torch.int8}  # type: ignore[attr-defined]
    assert len(decode_plain(Target(model), PROMPTS[0], 5)) == 5


def test_what_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)  # an import then fails
    with pytest.raises(InputError, match=r"needs torchao, .* pip install 'specfleet\[quantised\]'"):
        load_model("demo", "target", "int8", "cpu")
    monkeypatch.setattr(models.llama, "is_lean", lambda _: False)
    with pytest.raises(InputError, match=r"precision = 'int8' is for models of type .*llama"):
        load_model("demo", "target", "int8", "cpu")


@pytest.mark.usefixtures("library")
def test_four_bits_need_cuda() -> None:
    with pytest.raises(InputError, match="precision = 'int4' runs on cuda alone"):
        load_model("demo", "target", "int4", "cpu")
