"""Engines of others: what they answered when it was recorded, and programs in the place of their environments."""

import sys
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from specfleet.engine.node.build import with_positions
from specfleet.engine.outside.engines import environment_of
from specfleet.engine.outside.job import Facts, Served
from specfleet.engine.outside.steps import Differs, log_of, rows_differ, with_cache
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario

S = TypeVar("S", bound=Served)
RECORD = Path(__file__).parents[1] / "engine" / "data" / "outside_vllm.json"  # answers by names of scenarios


class Recorded(msgspec.Struct, Generic[S]):
    facts: Facts
    served: S


def recorded(name: str, file: Path = RECORD, kind: type[S] = Served) -> Recorded[S]:
    """Read what an engine answered to a scenario."""
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Recorded[kind]], strict=False)[name]


def run_of(scenario: Scenario, record: Recorded[S], differs: Differs = rows_differ, **changed: Any) -> Run:
    """Return the recorded run of a scenario, with changed fields of `Served`."""
    fleet = with_cache(with_positions(resolve(scenario)), record.facts)
    served = msgspec.structs.replace(record.served, **changed)
    return make_run(scenario, "engine", log_of(fleet, served, differs), fleet)


def is_installed(engine: str) -> bool:
    """Whether an engine is installed."""
    try:
        environment_of(engine)
    except InputError:
        return False
    return True


def put_engine(folder: Path, engine: str, text: str) -> None:
    """Put a program in the place of an engine's environment in the folder of engines."""
    program, python = folder / f"{engine}.py", folder / engine / "bin" / "python"
    program.write_text(text)
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    python.chmod(0o755)
