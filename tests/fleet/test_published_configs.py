"""Configs as they are published: fields of public repositories, and what they must be read as."""

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.configs import MAX_PARAMETERS, shape_of_config
from specfleet.fleet.hardware.passes import WEIGHT_BYTES
from specfleet.fleet.hardware.shape import MAX_LAYERS, ModelShape
from specfleet.fleet.hardware.shipped import shape_of

LINES = (Path(__file__).parent / "published_configs.jsonl").read_text().splitlines()
PUBLISHED: list[dict[str, Any]] = [json.loads(line) for line in LINES]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['repository']}/{Path(row['path']).stem}")
def test_published_configs_are_read_as_their_fields_say(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(row["config"]))
    if "hf_quant_config" in row:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(row["hf_quant_config"]))
    if "refused" in row:
        with pytest.raises(InputError) as refusal:
            shape_of(str(tmp_path))
        assert row["refused"] in str(refusal.value)
        assert "\n" not in str(refusal.value)
        return
    shape = shape_of(str(tmp_path))
    assert {name: getattr(shape, name) for name in row["read"]} == row["read"]


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 4, 1e300, 10**30, 0.5, "", "x" * 500, "re:(a+)+$", "re:[", "*" * 50, [], [[]], {},
)  # fmt: skip


def mutated(config: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A config with one to three of its values replaced, moved or left out, at any depth."""
    config = copy.deepcopy(config)
    for _ in range(draw.randint(1, 3)):
        table: Any = config
        while True:
            key = draw.choice(list(table))
            if not (isinstance(table[key], dict) and table[key] and draw.random() < 0.7):
                break
            table = table[key]
        change = draw.random()
        if change < 0.2:
            del table[key]
        elif change < 0.5:
            table[key] = copy.deepcopy(draw.choice(list(draw.choice(PUBLISHED)["config"].values())))
        elif change < 0.7 and isinstance(table[key], int):
            table[key] = int(table[key] * draw.choice((0, 0.5, 2, 1000, 10**6)))
        else:
            table[key] = copy.deepcopy(draw.choice(VALUES))
        if not table:
            table["model_type"] = "llama"
    return config


def read_or_refused(config: dict[str, Any]) -> tuple[ModelShape | None, str]:
    try:
        return shape_of_config("mutated", config, "here"), ""
    except InputError as refusal:
        return None, str(refusal)


def test_mutated_configs_are_refused_in_a_line_or_have_sizes() -> None:
    draw, read = random.Random(54), 0
    for _ in range(1000):
        config = mutated(draw.choice(PUBLISHED)["config"], draw)
        shape, line = read_or_refused(config)
        assert line.startswith("here: ") or (shape is not None and not line)
        assert "\n" not in line
        if shape is None:
            continue
        read += 1
        assert 0 < shape.parameters() <= MAX_PARAMETERS
        assert 0 < shape.layers <= MAX_LAYERS
        assert 0 < shape.cache_bytes_per_token() < 10**12
        assert {shape.weights_in, shape.mlp_in, shape.experts_in} <= {"", *WEIGHT_BYTES}
        assert math.isfinite(shape.positions)
    assert 100 < read < 900
