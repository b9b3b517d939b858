"""Stages of a calibration: each is kept when it ends, is not measured again, and needs room on its GPU.

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
from specfleet.engine.launch.memory import free_bytes, lacking
from specfleet.engine.launch.placement import visible_gpus
from specfleet.engine.launch.processes import in_process
from specfleet.fleet.errors import DeviceMemoryError, InputError
from specfleet.fleet.policies.shapes import CHAIN
from specfleet.fleet.scenario.named_files import absolute
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.left_out import MEANINGS, Missing

T = TypeVar("T")
Report = Callable[[str], None]

ADVICE = "use smaller models, a precision of fewer bytes, shorter texts, or a GPU with more free memory"


def silent(_line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Stage(Generic[T]):
    """One stage.

    - `measure`: returns its result, of the type `kind`.
    - `needs`: bytes on each GPU, by its name, of each part; the parts run one after the other.
    - `without`: what the profile lacks without this stage; None if it cannot do without.
    """

    name: str
    measure: Callable[[], T]
    kind: type[T]
    needs: Sequence[Mapping[str, int]] = ()
    without: Missing | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one calibration on this host.

    - `report`: is called with the name of each stage as it begins; `note` with lines on those left out.
    - `facts`: of this host. `gpus`: names of its GPUs.
    - `left_out`: what the profile lacks, each with the reason. `kept_on`: dates of the stages of an earlier try.
    - `notes`: what did not add up in measurements, which append to it; each is kept with its stage.
    """

    kept: Kept
    report: Report = silent
    note: Report = silent
    facts: Mapping[str, str] = field(default_factory=dict)
    gpus: Sequence[str] = ()
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

        InputError if the profile cannot do without it.
        """
        self.report(stage.name)
        if (kept := self.kept.read(stage.name, stage.kind)) is not None:
            result, sealed = kept
            self.kept_on.append(sealed.written)
            self.notes.extend(sealed.notes)
            return result
        free = free_bytes(self.gpus) if stage.needs else {}
        reason = next(filter(None, (lacking(needs, free) for needs in stage.needs)), None)
        if reason is not None and stage.without is None:
            raise InputError(f"calibration: {stage.name}: {reason}; {ADVICE}")
        if reason is None:
            before = len(self.notes)
            try:
                result = stage.measure()
            except DeviceMemoryError as error:
                if stage.without is None:
                    raise
                reason = str(error)
            else:
                self.kept.write(stage.name, result, self.notes[before:])
                return result
        assert stage.without is not None
        self.left_out[stage.without] = f"{stage.name}: {reason}"
        self.note(f"left out: {stage.name}: {reason}; the profile lacks {MEANINGS[stage.without]}")
        return None

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
    facts, gpus = in_process("facts of this host", host_facts), visible_gpus()
    kept = Kept(folder, fingerprint_of(scenario, effort, facts | {"engine": engine}))
    return Stages(kept, report, note, facts, gpus, notes=[] if notes is None else notes)


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
