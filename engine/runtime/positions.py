"""Positions that a fleet's models know: a text, and a draft beyond it, must not reach further."""

import msgspec
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.decoding.llama import is_lean
from engine.decoding.models import folder_of, known_positions
from fleet.scenario.settled import Fleet


def with_positions(fleet: Fleet) -> Fleet:
    """Return the fleet with the positions that its models know; those of a folder that is not here are unknown."""
    if fleet.drafters.kind == "replayed":
        return fleet  # nobody runs a model
    asked = [(fleet.verifiers.model, "target")]
    if fleet.drafters.kind == "model" and fleet.drafters.count:
        asked.append((fleet.drafters.model, "drafter"))
    known = [positions for model, role in asked if (positions := positions_of(model, role))]
    if not known:
        return fleet
    return msgspec.structs.replace(fleet, drafters=msgspec.structs.replace(fleet.drafters, positions=min(known)))


def positions_of(model: str, role: str) -> int:
    """Return how many positions the model of a folder knows; 0 for any number, or where it is not here."""
    try:
        config = AutoConfig.from_pretrained(folder_of(model, role), local_files_only=True)
        if is_lean(config):
            return 0
        with torch.device("meta"):  # its modules without its numbers
            return known_positions(AutoModelForCausalLM.from_config(config))
    except Exception:  # noqa: BLE001  (what is wrong with a model, whoever loads it says in one line)
        return 0
