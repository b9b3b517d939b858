"""Policies of installed packages, beside those that ship.

A package offers a policy by an entry point of the group `specfleet.policies`. Its name is the key that may name the
policy, a dot and any word; its object is a frozen struct like those in this folder:

    [project.entry-points."specfleet.policies"]
    "order.shortest-first" = "mine.policies:ShortestFirst"
"""

from collections.abc import Collection, Iterator
from functools import reduce
from importlib.metadata import EntryPoint, entry_points
from operator import or_
from typing import Any

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import reason

GROUP = "specfleet.policies"
KEYS = ("order", "admit", "route", "allocate")


def with_own(key: str, *shipped: type[msgspec.Struct]) -> Any:
    """Return the union of the policies that ship for a key and those that installed packages offer for it.

    Raises InputError, one line with the entry point, for what is no frozen struct with a `policy` tag of its own.
    """
    policies = list(shipped)
    for offered, point in _points():
        if offered == key:
            policies.append(_loaded(point, {str(policy.__struct_config__.tag) for policy in policies}))
    return reduce(or_, policies)


def installed() -> Iterator[type[msgspec.Struct]]:
    """Yield the policies that installed packages offer; InputError as `with_own`."""
    return (_loaded(point, ()) for _, point in _points())


def _points() -> Iterator[tuple[str, EntryPoint]]:
    """Yield the entry points by name, each with the key that may name its policy."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if (key := point.name.partition(".")[0]) not in KEYS:
            raise InputError(
                f"entry point {point.name} of {GROUP}: allowed: {', '.join(f'{key}.NAME' for key in KEYS)}"
            )
        yield key, point


def _loaded(point: EntryPoint, taken: Collection[str]) -> type[msgspec.Struct]:
    origin = f"entry point {point.name} of {GROUP}"
    try:
        policy = point.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"{origin}: cannot be loaded ({reason(error)})") from error
    config = getattr(policy, "__struct_config__", None)
    if not isinstance(policy, type) or config is None or config.tag_field != "policy" or not config.frozen:
        raise InputError(
            f"{origin}: needs a frozen msgspec.Struct with tag=NAME and tag_field='policy', as those of "
            f"fleet/policies; it names {policy!r}"
        )
    if config.tag in taken:
        raise InputError(f"{origin}: another policy of this key is called {config.tag!r}; choose another tag")
    return policy
