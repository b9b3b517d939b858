"""Configs as they are published: fields as they stand at the repository, path or page of each line, and how they read.

Lines with `held_out` were opened after the reader was written; `first_try` says how it read them then.
"""

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.configs import MAX_PARAMETERS, shape_of_config
from specfleet.fleet.hardware.passes import WEIGHT_BYTES
from specfleet.fleet.hardware.shape import MAX_LAYERS, ModelShape
from specfleet.fleet.hardware.shipped import shape_of

HERE = Path(__file__).parent
PUBLISHED: list[dict[str, Any]] = [
    json.loads(line) for line in (HERE / "published_configs.jsonl").read_text().splitlines()
]
FORMS: list[dict[str, Any]] = [json.loads(line) for line in (HERE / "data/config_forms.jsonl").read_text().splitlines()]

VARIANTS: list[dict[str, Any]] = [
    json.loads(line) for line in (HERE / "data/config_variants.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['repository']}/{Path(row['path']).stem}")
def test_published_configs_are_read_as_their_fields_say(row: dict[str, Any], tmp_path: Path) -> None:
    assert_read(row, row["config"], tmp_path)


@pytest.mark.parametrize("row", FORMS[1:], ids=lambda row: row.get("refused") or row["read"]["weights_in"])
def test_forms_of_documentation_are_read_as_it_says(row: dict[str, Any], tmp_path: Path) -> None:
    sizes = {**shipped_models()["llama-3.1-8b"], "quantization_config": row["quantization_config"]}
    assert_read(row, sizes, tmp_path)


@pytest.mark.parametrize("row", VARIANTS, ids=lambda row: row["what"])
def test_variants_of_keys_are_read_or_refused_by_name(row: dict[str, Any], tmp_path: Path) -> None:
    assert_read(row, row.get("whole") or {**shipped_models()["llama-3.1-8b"], **row["keys"]}, tmp_path)


def assert_read(row: dict[str, Any], config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if "hf_quant_config" in row:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(row["hf_quant_config"]))
    if "refused" in row:
        with pytest.raises(InputError) as refusal:
            shape_of(str(tmp_path))
        assert row["refused"] in str(refusal.value)
        return
    shape = shape_of(str(tmp_path))
    counted = {"counted": shape.parameters()}
    assert {name: counted.get(name, getattr(shape, name, None)) for name in row["read"]} == row["read"]


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
