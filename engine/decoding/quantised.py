"""Weights of 8 and 4 bits, by torchao: the matrices of the layers; embedding, head and activations keep 16 bits.

The lean forward pass fuses matrices first and quantises the result, layer by layer, so that a device never holds all
layers in 16 bits.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from specfleet.engine.decoding.llama import Layer, fuse_layer
from specfleet.fleet.errors import InputError

BITS: Mapping[str, int] = {"int8": 8, "int4": 4}  # of a weight, by precision; scales add up to 3 %
GROUP = 128  # numbers that share a scale, in 4 bits; in 8 bits a row does
MATRICES = ("qkv", "output", "gate_up", "down")


def quantised_layers(model: torch.nn.Module, precision: str, device: torch.device) -> list[Layer]:
    """Take the layers out of a lean model, and return them on the device with quantised matrices."""
    config, body = config_of(precision, device), model.model
    layers = []
    for module in body.layers:
        layer = fuse_layer(module.to(device))
        module.to("meta")  # its weights are parts of the fused ones
        layers.append(replace(layer, **{name: quantised(getattr(layer, name), config) for name in MATRICES}))
    body.layers = torch.nn.ModuleList()
    return layers


def config_of(precision: str, device: torch.device) -> Any:
    """Return torchao's configuration; InputError where this host or device cannot have such weights."""
    try:
        from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise InputError(
            f"precision = {precision!r} needs torchao, which is not installed; pip install 'specfleet[quantised]'"
        ) from error
    if precision == "int8":
        return Int8WeightOnlyConfig()
    if device.type != "cuda":
        raise InputError(f"precision = 'int4' runs on cuda alone, and this is a {device.type}; allowed here: 'int8'")
    return Int4WeightOnlyConfig(group_size=GROUP, int4_packing_format="tile_packed_to_4d")


def quantised(weight: torch.Tensor, config: Any) -> torch.Tensor:
    """Return a matrix (outputs, inputs) with quantised numbers, which torch's `linear` takes in its place."""
    from torchao.quantization import quantize_  # noqa: PLC0415  (an extra)

    layer = torch.nn.Linear(1, 1, bias=False, device="meta")
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.out_features, layer.in_features = weight.shape
    quantize_(layer, config)
    return layer.weight.data
