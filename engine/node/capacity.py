"""Limits of the models and devices of this host: positions of models, memory of caches."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from engine.decoding.admitted import config_of
from engine.decoding.cache import CacheShape, shape_of
from engine.decoding.eagle_files import read_head_config
from engine.decoding.folders import explained, read_config
from engine.decoding.llama import is_lean
from engine.decoding.models import PRECISIONS, folder_of, is_folder_of_model, known_positions
from engine.node.build import head_folder
from fleet.errors import InputError
from fleet.scenario.resolved import Fleet


class Account(msgspec.Struct, frozen=True):
    """The cache of one station: `rows` of `row_tokens` tokens."""

    station: str
    token_bytes: int
    row_tokens: int
    rows: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.token_bytes * self.row_tokens

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return self.row_bytes * self.rows


def accounts_of(fleet: Fleet) -> list[Account]:
    """Return the caches of a fleet's drafter and targets, each with its largest number of open rows."""
    tokens, drafters, verifiers = fleet.room.longest_row, fleet.drafters, fleet.verifiers
    rows = fleet.batch.rule.pool if fleet.batch is not None else max(fleet.streams, verifiers.count)
    accounts = []
    if drafters.count and drafters.kind != "replayed" and (token_bytes := draft_token_bytes(fleet)):
        accounts.append(Account("drafter", token_bytes, tokens, rows))
    if fleet.batch is not None or verifiers.kind == "real":
        shape = shape_of(config_of(folder_of(verifiers.model, "target")))
        accounts.append(Account("targets", bytes_per_token(shape, fleet.precision), tokens, rows))
    return accounts


def rows_at_drafter(fleet: Fleet, drafter: int) -> int:
    """Return the number of streams at a drafter at the beginning; it may change behind a router."""
    streams = max(fleet.streams, fleet.verifiers.count)
    return max(sum(fleet.drafter_of(tag) == drafter for tag in range(streams)), 1)


def draft_token_bytes(fleet: Fleet) -> int:
    """Return the bytes of a token in the drafter's cache; 0 without a cache."""
    drafters = fleet.drafters
    if drafters.kind == "lookup":
        return 0
    if drafters.kind == "eagle":
        folder = head_folder(fleet)
        with explained(folder / "config.json", "not the configuration of a draft head"):
            head = shape_of(LlamaConfig.from_dict(read_head_config(folder)))
        shape = CacheShape(1, head.heads, head.size)
    else:
        shape = shape_of(config_of(folder_of(drafters.model, "drafter")))
    return bytes_per_token(shape, fleet.precision)


def bytes_per_token(shape: CacheShape, precision: str) -> int:
    """Bytes of one token's keys and values."""
    return shape.numbers * PRECISIONS[precision].itemsize


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


def check_room(fleet: Fleet, accounts: Sequence[Account], device: torch.device) -> None:
    """Raise InputError if the caches of a batch do not fit. Called before loading: all rows are allocated at once."""
    free, asked = free_bytes(device), sum(account.bytes for account in accounts)
    if asked > free:
        each = " and ".join(f"{account.row_bytes} a row, {account.station}" for account in accounts)
        raise InputError(
            f"scenario {fleet.name!r}: {accounts[0].rows} rows of {accounts[0].row_tokens} tokens need {asked} "
            f"bytes of cache ({each}), and {device.type} has {free} free; lower batch.rule.size, or the lengths of "
            "[workload]"
        )


def account_line(account: Account) -> str:
    """Return an account as a line of text."""
    return (
        f"{account.station}: {account.token_bytes} bytes a token, {account.row_bytes / 1e6:.3g} MB a row of "
        f"{account.row_tokens} tokens, {account.bytes / 1e6:.3g} MB for {account.rows}"
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
