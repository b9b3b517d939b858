"""An EAGLE drafter away from its target loads no layer of it, and drafts what it would beside its target."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specfleet.engine.node.build import load_target, new_drafter
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from tests.helpers.pairs import drafters_of, pair_scenario

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def fleet_of(tiny: Path, kind: str) -> Fleet:
    return resolve(pair_scenario(tiny, drafters=drafters_of(tiny, kind)))


def drafts_of(drafter: Any) -> list[int]:
    """A draft after a prompt, of which the target's states are random."""
    torch.manual_seed(5)
    drafter.open(0, PROMPT)
    drafter.read(0, hidden=torch.randn(len(PROMPT) - 1, drafter.state_numbers, dtype=torch.float64))
    tokens: list[int] = drafter.draft([0], [4]).tokens[0].tolist()
    return tokens


@pytest.mark.parametrize("kind", ["EAGLE", "EAGLE-3"])
def test_heads_draft_the_same_without_their_targets_layers(tiny: Path, kind: str) -> None:
    fleet = fleet_of(tiny, kind)
    beside, apart = new_drafter(fleet, load_target(fleet)), new_drafter(fleet)
    assert drafts_of(apart) == drafts_of(beside)
    assert not any(".layers." in name for name in apart.model.model.state_dict())  # type: ignore[union-attr]


def test_tied_targets_lend_their_embedding_as_head(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    fleet, file = fleet_of(tmp_path, "EAGLE"), tmp_path / "target" / "model.safetensors"
    tensors = load_file(file)
    del tensors["lm_head.weight"]
    save_file(tensors, file, {"format": "pt"})
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    (tmp_path / "target" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    assert drafts_of(new_drafter(fleet)) == drafts_of(new_drafter(fleet, load_target(fleet)))


def test_missing_weights_are_named_without_layers_too(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "target" / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"weights are missing: model\.embed_tokens\.weight"):
        new_drafter(fleet_of(tmp_path, "EAGLE"))
