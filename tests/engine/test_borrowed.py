"""An EAGLE drafter away from its target loads what it borrows, and drafts what it would beside its target."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specfleet.engine.decoding.eagle import EagleDrafter
from specfleet.engine.launch.memory import borrowed_bytes, target_bytes
from specfleet.engine.node.build import load_target, new_drafter
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from tests.helpers.pairs import drafters_of, pair_scenario

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def fleet_of(tiny: Path, kind: str) -> Fleet:
    return resolve(pair_scenario(tiny, drafters=drafters_of(tiny, kind)))


def drafts_of(drafter: EagleDrafter) -> list[int]:
    """A draft after a prompt, of which the target's states are random."""
    torch.manual_seed(5)
    drafter.open(0, PROMPT)
    drafter.prefill(0, hidden=torch.randn(len(PROMPT) - 1, drafter.state_numbers, dtype=torch.float64))
    tokens: list[int] = drafter.draft([0], [4]).tokens[0].tolist()
    return tokens


def held_bytes(drafter: EagleDrafter) -> int:
    return sum(weight.nbytes for weight in drafter.model.model.parameters() if not weight.is_meta)


@pytest.mark.parametrize("kind", ["EAGLE", "EAGLE-3"])
def test_heads_draft_the_same_without_their_targets_layers(tiny: Path, kind: str) -> None:
    fleet = fleet_of(tiny, kind)
    beside, apart = new_drafter(fleet, load_target(fleet)), new_drafter(fleet)
    assert isinstance(beside, EagleDrafter)
    assert isinstance(apart, EagleDrafter)
    assert drafts_of(apart) == drafts_of(beside)
    assert held_bytes(apart) == borrowed_bytes(fleet) < target_bytes(fleet).weights_bytes / 2


def test_tied_targets_lend_their_embedding_and_others_all(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    fleet, file = fleet_of(tmp_path, "EAGLE"), tmp_path / "target" / "model.safetensors"
    tensors = load_file(file)
    head = tensors.pop("lm_head.weight")
    save_file(tensors, file, {"format": "pt"})
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    (tmp_path / "target" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    beside, apart = new_drafter(fleet, load_target(fleet)), new_drafter(fleet)
    assert drafts_of(apart) == drafts_of(beside)  # type: ignore[arg-type]
    assert held_bytes(apart) == borrowed_bytes(fleet) == 8 * head.numel()  # type: ignore[arg-type]
    torch.save(tensors, tmp_path / "target" / "pytorch_model.bin")
    file.unlink()
    assert borrowed_bytes(fleet) == target_bytes(fleet).weights_bytes, "a pickled file has no names"
    assert held_bytes(new_drafter(fleet)) == 8 * sum(tensor.numel() for tensor in tensors.values())  # type: ignore[arg-type]
