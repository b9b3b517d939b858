"""The models that a fleet names, and what their config.json states; read without torch."""

from typing import NamedTuple

from specfleet.engine.decoding.folders import check_layers, named_folder
from specfleet.fleet.hardware.positions import check_context, positions_in
from specfleet.fleet.inputs.text import is_file, read_json
from specfleet.fleet.scenario.resolved import Fleet


class Named(NamedTuple):
    """A model that a fleet names: the key that names it, its name, and its role."""

    key: str
    model: str
    role: str


def models_of(fleet: Fleet) -> list[Named]:
    """Return the models of a fleet, each once: drafters' first; none with replayed drafters, which draw texts."""
    if fleet.drafters.kind == "replayed":
        return []
    roles = {"model": "drafter", "eagle": "eagle", "block": "block"}
    drafting = roles.get(fleet.drafters.kind) if fleet.drafters.count else None
    sides = [("drafters", fleet.drafters, drafting)] if drafting else []
    named = [
        Named(f"{side}.model" if model == stations.model else f"{side}.tiers: model", model, role)
        for side, stations, role in (*sides, ("verifiers", fleet.verifiers, "target"))
        for _, model in stations.models
    ]
    return list(dict.fromkeys(named))


def check_stated(fleet: Fleet) -> None:
    """Raise InputError for texts beyond what the config.json of a model on this host states, and for more layers."""
    known: dict[str, int] = {}
    for _, model, role in models_of(fleet):
        path = named_folder(model, role) / "config.json"
        if is_file(path) and isinstance(content := read_json(path), dict):
            check_layers(path, content)
            known[str(path.parent)] = positions_in(content, str(content.get("model_type")), str(path))
    check_context(known, fleet.lengths.longest_text, 0)  # near the end drafts are shorter
