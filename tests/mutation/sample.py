"""Which mutants are tried: the files, the changes that say something, and a random sample of places."""

import random
import re
from itertools import groupby
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec

_FIGURES = ("tables", "measure", "window", "intervals", "steady", "overload")
FILES = (
    "fleet/stations/*.py",
    "fleet/policies/*.py",
    "fleet/acceptance/models.py",
    "fleet/times/durations.py",
    *(f"fleet/records/metrics/{name}.py" for name in _FIGURES),
    "sim/servers.py",
)

# Left out is what says nothing about tests: changes that cannot be seen (`is None` to `== None`, and below `gc=`, which
# is speed), and those at which Python itself stumbles, which any test would notice (bit operations on floats, types,
# absent @property).
SAYS_NOTHING = re.compile(
    r"_(Is_Eq|IsNot_NotEq|Eq_Is|NotEq_IsNot)$|_(Is|IsNot)_(Lt|Gt|LtE|GtE)$|_(BitOr|BitAnd|BitXor|RShift|LShift)(_|$)"
    r"|Invert|RemoveDecorator|ExceptionReplacer"
)


def every_mutation(folder: Path) -> list[MutationSpec]:
    """Return all mutations of the files under the current folder, by place; `folder` is for cosmic-ray's own files."""
    paths = sorted(path for pattern in FILES for path in Path().glob(pattern))
    with use_db(str(folder / "mutations.sqlite")) as known:
        init(paths, known, {})
        found = [mutation for item in known.work_items for mutation in item.mutations]
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in paths}

    def says_something(mutation: MutationSpec) -> bool:
        row, column = mutation.start_pos
        before = lines[mutation.module_path][row - 1][:column]
        return not SAYS_NOTHING.search(mutation.operator_name) and not before.endswith("gc=")

    return sorted(filter(says_something, found), key=_place_and_change)


def sample(mutations: list[MutationSpec], count: int, seed: int) -> list[MutationSpec]:
    """Draw `count` places, each alike, and one change at each; a smaller sample is the beginning of a larger one."""
    rng = random.Random(seed)
    drawn = [rng.choice(list(changes)) for _, changes in groupby(mutations, _place)]
    rng.shuffle(drawn)
    return drawn[:count]


def _place(mutation: MutationSpec) -> tuple[str, tuple[int, int]]:
    return str(mutation.module_path), mutation.start_pos


def _place_and_change(mutation: MutationSpec) -> tuple[str, tuple[int, int], str, int]:
    return *_place(mutation), mutation.operator_name, mutation.occurrence
