"""Stages of a calibration: each is kept when it ends, is not measured again, and may find no room on its GPU.

No stage loads a model into this process: models live in processes that end with their stage.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from specfleet.calibration.kept import Kept, fingerprint_of
from specfleet.engine.decoding.telemetry import host_facts
from specfleet.engine.launch.processes import in_process
from specfleet.fleet.errors import DeviceMemoryError
from specfleet.fleet.policies.shapes import CHAIN
from specfleet.fleet.scenario.named_files import absolute
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.left_out import MEANINGS, Missing

T = TypeVar("T")
Report = Callable[[str], None]


def silent(_line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Stage(Generic[T]):
    """One stage.

    - `measure`: returns its result, of the type `kind`.
    - `without`: what the profile lacks without this stage; None if it cannot do without.
    """

    name: str
    measure: Callable[[], T]
    kind: type[T]
    without: Missing | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one calibration on this host.

    - `report`: is called with the name of each stage as it begins; `note` with lines on those left out.
    - `facts`: of this host.
    - `left_out`: what the profile lacks, each with the reason. `kept_on`: dates of the stages of an earlier try.
    - `notes`: what did not add up in measurements, which append to it; each is kept with its stage.
    """

    kept: Kept
    report: Report = silent
    note: Report = silent
    facts: Mapping[str, str] = field(default_factory=dict)
    left_out: dict[Missing, str] = field(default_factory=dict)
    kept_on: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def provenance(self) -> dict[str, str]:
        """What a profile says of its measurement: facts of the host, stages of an earlier try, the first note."""
        kept = f"{len(self.kept_on)} stages of an earlier try, of {', '.join(sorted(set(self.kept_on)))}"
        more = f"; and {len(self.notes) - 1} more" if len(self.notes) > 1 else ""
        return (
            dict(self.facts)
            | ({"kept": kept} if self.kept_on else {})
            | ({"notes": f"{self.notes[0]}{more}"} if self.notes else {})
        )

    def take(self, stage: Stage[T]) -> T | None:
        """Return the result of a stage, which is kept or is measured now; None if it is left out for lack of memory.

        DeviceMemoryError if the profile cannot do without it.
        """
        self.report(stage.name)
        if (kept := self.kept.read(stage.name, stage.kind)) is not None:
            result, sealed = kept
            self.kept_on.append(sealed.written)
            self.notes.extend(sealed.notes)
            return result
        before = len(self.notes)
        try:
            result = stage.measure()
        except DeviceMemoryError as error:
            if stage.without is None:
                raise
            self.left_out[stage.without] = f"{stage.name}: {error}"
            self.note(f"left out: {stage.name}: {error}; the profile lacks {MEANINGS[stage.without]}")
            return None
        self.kept.write(stage.name, result, self.notes[before:])
        return result

    def note_kept(self, names: Sequence[str]) -> None:
        """Say in one line how many of these stages are kept."""
        if count := sum(map(self.kept.holds, names)):
            anew = f"remove {self.kept.folder} to measure all anew"
            self.note(f"{count} of {len(names)} stages are kept from an earlier try; {anew}")


def stages_on_host(
    scenario: Scenario,
    effort: msgspec.Struct,
    folder: Path | None,
    report: Report,
    note: Report,
    engine: str = "",
    notes: list[str] | None = None,
) -> Stages:
    """Return the stages of a calibration on this host, without any taken.

    - `folder`: where results are kept. `engine`: the packages of another engine. `notes`: as in `Stages`.
    """
    facts = in_process("facts of this host", host_facts)
    kept = Kept(folder, fingerprint_of(scenario, effort, facts | {"engine": engine}))
    return Stages(kept, report, note, facts, notes=[] if notes is None else notes)


def provenance_of(scenario: Scenario) -> dict[str, str]:
    """Return the time, and the measured models and prompts by absolute paths, as a profile's provenance has them."""
    scenario = absolute(scenario)
    drafters = scenario.drafters
    return {
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "drafter_kind": drafters.kind,
        "drafter_model": drafters.model,
        **({} if drafters.shape == CHAIN else {"drafter_shape": str(drafters.shape)}),
        "target_model": scenario.verifiers.model,
        "precision": scenario.precision,
        "prompts_file": scenario.workload.prompts,
    }
