"""Messages, states and policies are values: they are frozen, and refuse unknown keys."""

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec

from specfleet import fleet


def structs() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(fleet.__path__, "specfleet.fleet."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.name:
                yield value


STRUCTS = sorted(structs(), key=lambda struct: struct.__qualname__)


def test_no_struct_can_be_changed() -> None:
    assert len(STRUCTS) > 80
    assert [struct for struct in STRUCTS if not struct.__struct_config__.frozen] == []


def test_policies_and_models_refuse_unknown_keys() -> None:
    chosen_by_name = [struct for struct in STRUCTS if struct.__struct_config__.tag_field in ("policy", "model")]
    assert len(chosen_by_name) > 30
    assert [struct for struct in chosen_by_name if not struct.__struct_config__.forbid_unknown_fields] == []
