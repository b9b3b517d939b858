"""The limits of every number of a policy or an acceptance model: allowed values, and refusals with the key."""

import importlib
import math
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from fleet import policies
from fleet.acceptance import models as acceptance
from fleet.acceptance import places
from fleet.policies.order import Weighted

BILLION = 10**9

# Both ends are allowed, but for a lower end written as a string. A draft has 4096 tokens at most.
LIMITS: dict[str, tuple[Any, float | None]] = {
    "AdaptiveDepth.most": (1, 4095), "Heuristic.most": (1, 4096),
    "AfterIdle.idle_gap_s": (0, BILLION), "AfterIdle.tokens": (1, 4096),
    "Ahead.least": (1, 4096),
    "AtMost.sessions": (0, BILLION), "AllWaiting.most": (1, 1 << 30), "BetaGeometric.a": ("0", 1e12),
    "BetaGeometric.b": ("0", 1e12), "ByPlace.depth": (1, 4096),
    "Fixed.depth": (0, 4096), "FixedShare.budget": (0, 4096), "Geometric.beta": (0, 1),
    "GoodSpeed.budget": (0, 4096), "GoodSpeed.eta": ("0", 1), "GoodSpeed.beta": ("0", 1), "GoodSpeed.decay": (0, 1),
    "PerPosition.rates": (0, 1), "PerPosition.survival": (0, 1), "PerPosition.histogram": (0, None),
    "RandomShare.budget": (0, 4096), "Realign.size": (1, BILLION), "Recorded.depth": (1, None),
    "Recorded.sessions": (0, None), "Rollback.size": (1, BILLION), "SameLength.size": (1, BILLION),
    "SameLength.window": (1, BILLION), "Slots.size": (1, BILLION),
    "Weighted.weights": ("0", BILLION),
}  # fmt: skip


def numbers() -> Iterator[tuple[type[msgspec.Struct], str, inspect.IntType | inspect.FloatType, int]]:
    """Yield every number of the rooms: its struct, its key, its type, and its depth in lists."""
    rooms = [
        importlib.import_module(f"fleet.policies.{found.name}") for found in pkgutil.iter_modules(policies.__path__)
    ]
    for room in [*rooms, acceptance, places]:
        for struct in vars(room).values():
            if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
                continue
            if struct.__module__ != room.__name__ or struct.__struct_config__.tag_field is None:
                continue
            for field in msgspec.structs.fields(struct):
                yield from ((struct, field.name, kind, lists) for kind, lists in leaves(inspect.type_info(field.type)))


def leaves(kind: inspect.Type, lists: int = 0) -> Iterator[tuple[inspect.IntType | inspect.FloatType, int]]:
    match kind:
        case inspect.UnionType():
            for part in kind.types:
                yield from leaves(part, lists)
        case inspect.VarTupleType():
            yield from leaves(kind.item_type, lists + 1)
        case inspect.IntType() | inspect.FloatType():
            yield kind, lists


NUMBERS = {f"{struct.__name__}.{key}": (struct, key, kind, lists) for struct, key, kind, lists in numbers()}


def test_every_number_is_listed() -> None:
    assert NUMBERS.keys() == LIMITS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_a_number_is_taken_within_its_limits_and_refused_beyond(name: str) -> None:
    struct, key, kind, lists = NUMBERS[name]
    least, most = LIMITS[name]

    def read(value: float) -> None:
        wrapped: Any = value
        for _ in range(lists):
            wrapped = [wrapped, wrapped]
        annotation = next(field.type for field in msgspec.structs.fields(struct) if field.name == key)
        msgspec.convert({key: wrapped}, msgspec.defstruct("Alone", [(key, annotation)]))

    is_whole = isinstance(kind, inspect.IntType)
    beyond = 1 if is_whole else 1e-9
    lowest = float(least) if isinstance(least, str) else least
    refused = [lowest if isinstance(least, str) else lowest - beyond]
    taken = [lowest + beyond if isinstance(least, str) else lowest]
    if most is not None:
        taken.append(most)
        refused.append(most + 1 if is_whole else math.nextafter(most, math.inf))
    for value in taken:
        read(value)
    for value in refused:
        with pytest.raises(msgspec.ValidationError, match=key):
            read(value)


@pytest.mark.parametrize(("struct", "key"), [(Weighted, "weights"), (acceptance.PerPosition, "rates")])
def test_a_list_has_one_entry_or_more(struct: type[msgspec.Struct], key: str) -> None:
    config = struct.__struct_config__
    tag = {str(config.tag_field): config.tag}
    assert getattr(msgspec.convert(tag | {key: [0.5]}, struct), key) == (0.5,)
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert(tag | {key: []}, struct)
