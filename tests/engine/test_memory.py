"""What processes need of their GPUs' memory: equal to what loaded models and their caches hold, station by station."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from specfleet.engine.decoding.checkpoints import count_numbers
from specfleet.engine.decoding.pages import whole_pages
from specfleet.engine.launch.memory import (
    borrowed_bytes,
    drafter_bytes,
    free_bytes,
    lacking,
    needs_of,
    process_bytes,
    target_bytes,
)
from specfleet.engine.node.build import load_target, new_drafter, new_target
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from tests.fakes.nvml import Nvml
from tests.helpers.marks import slow
from tests.helpers.pairs import drafters_of, pair_scenario

ROOM = (3, 50)


def weights_bytes(model: torch.nn.Module) -> int:
    return sum(weight.nbytes for weight in model.parameters())


def fleet_of(tiny: Path, kind: str = "", **tables: dict[str, object]) -> Fleet:
    drafters = drafters_of(tiny, kind) if kind else {}
    return resolve(pair_scenario(tiny, **{"drafters": drafters | tables.pop("drafters", {})} | tables))


@pytest.mark.parametrize("kind", ["", "EAGLE", slow("EAGLE-3")])
def test_weights_and_caches_are_known_before_they_are_loaded(tiny: Path, kind: str) -> None:
    fleet = fleet_of(tiny, kind)
    target = new_target(fleet, load_target(fleet), ROOM)
    drafter: Any = new_drafter(fleet, target.model, ROOM)
    tokens = ROOM[0] * ROOM[1]
    assert target_bytes(fleet).with_cache(tokens) == weights_bytes(target.model.model) + target.cache.storage.nbytes
    known = drafter_bytes(fleet)
    assert known.with_cache(tokens) - known.weights_bytes == drafter.cache.storage.nbytes
    if kind:  # tables beside the weights, and layers of its own where it shares the target's
        stored = load_file(tiny / str(drafters_of(tiny, kind)["model"]).split("/")[-1] / "model.safetensors")
        assert known.weights_bytes == 8 * sum(tensor.numel() for tensor in stored.values())
    else:
        assert known.weights_bytes == weights_bytes(drafter.model.model)
        assert borrowed_bytes(fleet) == 0


def test_pickled_weights_count_by_their_files(tiny: Path, tmp_path: Path) -> None:
    tensors = load_file(tiny / "target" / "model.safetensors")
    numbers = sum(tensor.numel() for tensor in tensors.values())
    torch.save({name: tensor.half() for name, tensor in tensors.items()}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text('{"torch_dtype": "float16"}')
    assert numbers <= count_numbers(tmp_path) < 1.5 * numbers, "the file holds names, too"
    (tmp_path / "config.json").write_text('{"torch_dtype": "float32"}')
    assert numbers / 2 <= count_numbers(tmp_path) < 0.75 * numbers


def test_each_gpu_holds_its_own_stations(tiny: Path) -> None:
    fleet = fleet_of(tiny, verifiers={"count": 3})
    row = whole_pages(fleet.room.longest_row)
    verifying = process_bytes(target_bytes(fleet).with_cache(row))
    drafting = process_bytes(drafter_bytes(fleet).with_cache(3 * row))
    assert needs_of(fleet, ["0"]) == {"0": drafting + 3 * verifying}
    assert needs_of(fleet, ["0", "1"]) == {"0": drafting + verifying, "1": 2 * verifying}
    assert needs_of(fleet, []) == {}


def test_replayed_stations_need_no_memory(tiny: Path) -> None:
    step = {"base_s": 0.01}
    fleet = fleet_of(tiny, verifiers={"kind": "replayed", "verify": step, "count": 3})
    assert needs_of(fleet, ["0"]) == {
        "0": process_bytes(drafter_bytes(fleet).with_cache(3 * whole_pages(fleet.room.longest_row)))
    }


def test_a_target_that_drafts_holds_both_models(tiny: Path) -> None:
    serving = {"place": "target"}, {"count": 1, "max_num_seqs": 4}
    for kind in ("", "EAGLE"):
        fleet = fleet_of(tiny, kind, drafters=serving[0], verifiers=serving[1], workload={"streams": 6})
        tokens = 4 * whole_pages(fleet.room.longest_row)
        both = target_bytes(fleet).with_cache(tokens), drafter_bytes(fleet).with_cache(tokens)
        assert needs_of(fleet, ["0"]) == {"0": process_bytes(*both)}, "a head shares the target of its process"


def test_free_memory_is_asked_of_each_visible_gpu() -> None:
    nvml = Nvml(gpus=2)
    free = free_bytes(["2", "1", "GPU-seven"], nvml)
    assert free == {"1": 77 << 30, "GPU-seven": 77 << 30}, "a GPU that is not there is not checked"
    assert nvml.opened == [1, "GPU-seven"]
    assert free_bytes(["0"], Nvml(("memory",))) == {}, "unknown memory is not checked"
    assert free_bytes(["0"], Nvml(gpus=0)) == {}


def test_the_first_gpu_without_room_is_named() -> None:
    free = {"0": 10, "1": 20}
    assert lacking({"0": 10, "1": 20}, free) is None
    assert lacking({"0": 10, "1": 21, "3": 99}, free) is not None
    assert lacking({"3": 99}, free) is None
