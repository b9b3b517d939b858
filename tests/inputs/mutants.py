"""One mutant by its kind and its number: made in a folder of its own, run, judged, and cleared away."""

import json
import random
import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.inputs.damage import DAMAGES, misplaced
from tests.inputs.kinds import Kind
from tests.inputs.law import Outcome, judged
from tests.inputs.scenarios import SCENARIOS
from tests.inputs.tables import csv_mutated, parquet_mutated
from tests.inputs.typed import typed
from tests.inputs.values import crossed, json_of, mutated, toml_of


class Mutant(NamedTuple):
    """The damage, and its result."""

    kind: str
    number: int
    what: str
    command: str
    outcome: Outcome


def tried(name: str, kind: Kind, number: int, good: Path, place: Path) -> Mutant:
    """Make and judge mutant `number` of a kind, from the good files in folder `good`, in the folder `place`."""
    rng = random.Random(f"{name} {number}")
    folder = place / f"{number}"  # caches by path must not take one mutant for another
    shutil.copytree(good, folder)
    try:
        command = rng.choice(kind.commands)
        if kind.form == "command line":
            command, what = typed(command, rng), "what is typed"
        else:
            file = rng.choice(kind.files)
            what = f"{file}: {_mutate(folder / file, kind.form, rng)}"
        return Mutant(name, number, what, " ".join(command), judged(command, folder, kind.statuses))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mutate(path: Path, form: str, rng: random.Random) -> str:
    """Damage a file: its place, its bytes or its content; say how."""
    chance = rng.random()
    if chance < 0.04:
        return misplaced(path, rng)
    form = {".json": "json", ".safetensors": "bytes"}.get(path.suffix, form)
    if chance < 0.4 or form == "bytes":
        damage = rng.choice(DAMAGES)
        path.write_bytes(damage(path.read_bytes(), rng))
        return damage.__name__
    if form == "parquet":
        return parquet_mutated(path, rng)
    text = path.read_text()
    match form:
        case "csv":
            text, what = csv_mutated(text, rng)
        case "toml":
            content = tomllib.loads(text)
            if rng.random() < 0.3:
                content, what = crossed(content, list(SCENARIOS.values()), rng)
            else:
                content, what = mutated(content, rng, is_toml=True)
            text = toml_of(content)
        case "jsonl":
            lines = text.splitlines()
            number = rng.randrange(len(lines))
            content, what = mutated(json.loads(lines[number]), rng)
            lines[number] = json_of(content)
            text, what = "\n".join(lines) + "\n", f"line {number + 1}: {what}"
        case _:
            content, what = mutated(json.loads(text), rng)
            text = json_of(content)
    path.write_text(text)
    return what
