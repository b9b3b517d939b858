"""Engines of others: what they answered when it was recorded, and programs in the place of their environments."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from specfleet.engine.node.build import with_positions
from specfleet.engine.outside.engines import environment_of
from specfleet.engine.outside.job import Facts, Served
from specfleet.engine.outside.steps import log_of, with_cache
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.names import Engine
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario


class Recorded(msgspec.Struct):
    facts: Facts
    served: Served


def record_of(engine: Engine) -> Path:
    """Return the file of what an engine answered, by names of scenarios."""
    return Path(__file__).parents[1] / "engine" / "data" / f"outside_{engine}.json"


def recorded(engine: Engine, name: str) -> Recorded:
    """Read what an engine answered to a scenario."""
    return msgspec.json.decode(record_of(engine).read_bytes(), type=dict[str, Recorded], strict=False)[name]


def run_of(engine: Engine, scenario: Scenario, **changed: Any) -> Run:
    """Return the recorded run of a scenario, with changed fields of `Served`."""
    own = recorded(engine, scenario.name)
    fleet = with_cache(with_positions(resolve(scenario)), own.facts)
    return make_run(scenario, "engine", log_of(fleet, msgspec.structs.replace(own.served, **changed)), fleet)


def is_installed(engine: Engine) -> bool:
    """Whether an engine is installed."""
    try:
        environment_of(engine)
    except InputError:
        return False
    return True


def put_engine(folder: Path, engine: Engine, text: str) -> None:
    """Put a program in the place of an engine's environment in the folder of engines."""
    program, python = folder / f"{engine}.py", folder / engine / "bin" / "python"
    program.write_text(text)
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    python.chmod(0o755)
