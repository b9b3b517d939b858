"""What the models of this host allow: their positions and vocabularies."""

import msgspec
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.decoding.admitted import known_positions
from engine.decoding.folders import read_config
from engine.decoding.llama import is_lean
from engine.decoding.models import folder_of, is_folder_of_model
from fleet.errors import InputError
from fleet.scenario.resolved import Fleet


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
