"""Limits of the models and devices of this host: positions of models, memory of caches."""

import os
from pathlib import Path

import msgspec
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PretrainedConfig

from engine.decoding.admitted import config_of, known_positions
from engine.decoding.cache import shape_of
from engine.decoding.eagle_files import read_head_config
from engine.decoding.folders import explained, read_config
from engine.decoding.llama import is_lean
from engine.decoding.models import PRECISIONS, folder_of, is_folder_of_model
from engine.node.build import head_folder
from fleet.errors import InputError
from fleet.scenario.resolved import Fleet


def row_bytes_of(fleet: Fleet) -> dict[str, int]:
    """Return the bytes of a cache's row at the drafter and at the targets, for stations that have one."""
    target, drafter = config_of(folder_of(fleet.verifiers.model, "target")), _config_of_drafter(fleet)
    configs = {"targets": target} if drafter is None else {"drafter": drafter, "targets": target}
    bytes_per_number = PRECISIONS[fleet.precision].itemsize * fleet.room.longest_row
    return {station: shape_of(config).numbers * bytes_per_number for station, config in configs.items()}


def rows_at_drafter(fleet: Fleet, drafter: int) -> int:
    """Return the number of streams at a drafter at the beginning; it may change behind a router."""
    streams = max(fleet.streams, fleet.verifiers.count)
    return max(sum(fleet.drafter_of(tag) == drafter for tag in range(streams)), 1)


def _config_of_drafter(fleet: Fleet) -> PretrainedConfig | None:
    """Return the configuration of the drafter's model, or of its head; None for a drafter without a cache."""
    drafters = fleet.drafters
    if not drafters.count or drafters.kind == "lookup":
        return None
    if drafters.kind != "eagle":
        return config_of(folder_of(drafters.model, "drafter"))
    folder = head_folder(fleet)
    with explained(folder / "config.json", "not the configuration of a draft head"):
        return LlamaConfig.from_dict(read_head_config(folder) | {"num_hidden_layers": 1})


def free_bytes(device: torch.device) -> int:
    """Bytes of a device that are free for this process."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # reserved by torch, unused
        return int(torch.cuda.mem_get_info(device)[0]) + reserved
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_room(fleet: Fleet, device: torch.device) -> None:
    """Raise InputError if the caches of a batch do not fit. Called before loading: all rows are allocated at once."""
    if fleet.batch is None:
        return
    rows, row_bytes, free = fleet.batch.rule.pool, row_bytes_of(fleet), free_bytes(device)
    asked = rows * sum(row_bytes.values())
    if asked > free:
        each = " and ".join(f"{size} a row, {station}" for station, size in row_bytes.items())
        raise InputError(
            f"scenario {fleet.name!r}: {rows} rows of {fleet.room.longest_row} tokens need {asked} "
            f"bytes of cache ({each}), and {device.type} has {free} free; lower batch.rule.size, or the lengths of "
            "[workload]"
        )


def with_positions(fleet: Fleet) -> Fleet:
    """Return the fleet with the position limits of its models; those of a missing folder are unknown."""
    if fleet.drafters.kind == "replayed":
        return fleet  # no model
    asked = [(fleet.verifiers.model, "target")]
    if fleet.drafters.kind == "model" and fleet.drafters.count:
        asked.append((fleet.drafters.model, "drafter"))
    known = [positions for model, role in asked if (positions := positions_of(model, role))]
    if not known:
        return fleet
    return msgspec.structs.replace(fleet, drafters=msgspec.structs.replace(fleet.drafters, positions=min(known)))


def positions_of(model: str, role: str) -> int:
    """Return the maximum number of positions of a model; 0 if it is unlimited or unknown."""
    try:
        config = AutoConfig.from_pretrained(folder_of(model, role), local_files_only=True)
        if is_lean(config):
            return 0
        with torch.device("meta"):  # modules without weights
            return known_positions(AutoModelForCausalLM.from_config(config))
    except Exception:  # noqa: BLE001  (loading the model reports the error)
        return 0


def largest_vocabulary(fleet: Fleet) -> int:
    """Return the larger vocabulary of the models on this host; 0 if it has none.

    InputError if drafts bring distributions over a vocabulary that is unknown here.
    """
    sides = ((fleet.verifiers, "target"), (fleet.drafters, "drafter"))
    named = [(side.model, role) for side, role in sides if side.kind in ("real", "model")]
    here = [folder_of(model, role) for model, role in named if is_folder_of_model(model, role)]
    largest = max((int(read_config(folder).vocab_size) for folder in here), default=0)
    if fleet.workload.temperature and not largest and not fleet.vocabulary:
        raise InputError(
            f"verifiers.model = {fleet.verifiers.model!r} is not on this host, and a router must know how large drafts "
            "with their distributions are; its config.json is enough, or a profile with a vocabulary"
        )
    return largest
