"""Records of other engines become a scenario that `simulate` runs at once, with the files that it needs beside it."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pandas as pd

from specfleet.calibration.readers.bench import read_bench
from specfleet.calibration.readers.llama_cpp import read_llama_cpp, read_llama_cpp_log
from specfleet.calibration.readers.llama_cpp_metrics import read_llama_cpp_metrics
from specfleet.calibration.readers.load import Load
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.reports import read_guidellm, read_inference_perf
from specfleet.calibration.readers.responses import read_aiperf, read_sglang, read_vllm
from specfleet.calibration.readers.served import (
    MET,
    SETTINGS,
    Times,
    estimated,
    inferred_profile,
    input_names,
    served,
    with_again,
    with_held,
    with_inferred,
    within,
)
from specfleet.calibration.readers.sglang_log import read_sglang_log
from specfleet.calibration.readers.signatures import name_foreign
from specfleet.calibration.readers.vllm_log import read_vllm_log
from specfleet.calibration.readers.vllm_metrics import read_vllm_metrics
from specfleet.fleet.acceptance.models import AcceptanceModel, Geometric, expected_committed, rate_of_mean
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file
from specfleet.fleet.hardware.words import drafter_named
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Workload
from specfleet.fleet.scenario.writing import scenario_lines, toml
from specfleet.fleet.shown import Shown
from specfleet.fleet.times.profile import HardwareProfile, read_profile, write_profile
from specfleet.fleet.times.step_time import StepTime


class Reader(NamedTuple):
    """A reader of one kind of records.

    - `read`: makes a recording of files.
    - `options`: what it reads beside them, by the names of its parameters.
    - `engine`: the shipped one whose scheduler and overheads the server has; vLLM for records of any server.
    """

    read: Callable[..., Recording]
    options: tuple[str, ...] = ()
    engine: str = "vllm"


READERS = {
    "vllm": Reader(read_vllm),
    "vllm-metrics": Reader(read_vllm_metrics, ("seconds",)),
    "vllm-log": Reader(read_vllm_log),
    "vllm-bench": Reader(read_bench, ("in_flight",)),
    "llama-cpp": Reader(read_llama_cpp, ("depth",), "graphs"),  # whose overheads are assumed
    "llama-cpp-log": Reader(read_llama_cpp_log, ("depth", "in_flight"), "graphs"),
    "llama-cpp-metrics": Reader(read_llama_cpp_metrics, engine="graphs"),
    "sglang": Reader(read_sglang, engine="sglang"),
    "sglang-log": Reader(read_sglang_log, ("depth",), "sglang"),
    "sglang-bench": Reader(read_bench, ("depth", "in_flight"), "sglang"),
    "aiperf": Reader(read_aiperf, ("in_flight",)),
    "guidellm": Reader(read_guidellm, ("in_flight",)),
    "inference-perf": Reader(read_inference_perf, ("in_flight",)),
}
OF_ALL = ("draft_ms", "verify_ms", "profile", "target", "draft", "depth")  # options of each import
LENGTHS, TRACE, PROFILE = "lengths.csv", "trace.csv", "profile.json"  # beside a scenario
TOKENS = ("num_prefill_tokens", "num_decode_tokens")
MAX_MS = 1e9
FEW = 10  # requests
NO_TIMES = "it has no step times: --draft-ms and --verify-ms state them, --profile names a profile that has them"
WIDTH = 108  # of a comment


class Imported(Shown, msgspec.Struct, frozen=True):
    """What an import made: the scenario as it reads back, its files, and what was counted beside what the file says.

    `stated`: mean tokens a round, bonus included, in the file's own words; None where it says nothing. `modelled`: what
    the scenario's acceptance comes to at its depth; None for a model of single tokens. `load`: what the server did, as
    far as the file says; `inputs`: which of it the scenario takes as input; `times`: the source of its step times,
    empty without.
    """

    scenario: Scenario
    files: tuple[Path, ...]
    format: str
    rounds: int
    accepted: int
    mean_acceptance_length: float
    stated: float | None
    modelled: float | None
    notes: tuple[str, ...]
    load: Load | None = None
    inputs: tuple[str, ...] = ()
    times: str = ""

    def line(self) -> str:
        """Say in one line what was read."""
        return f"{self.format}: {self.rounds} rounds, {self.mean_acceptance_length:.3f} tokens a round"

    def rows(self) -> list[tuple[str, float | None, float | None]]:
        """Return what was counted beside what the file says; None where either says nothing."""
        length, stated = self.mean_acceptance_length, self.stated
        if not self.rounds:
            return []
        return [
            ("rounds", self.rounds, None),
            ("accepted draft tokens", self.accepted, None),
            ("mean acceptance length, with the bonus token", length, stated),
            ("mean acceptance length, without", length - 1, None if stated is None else stated - 1),
            (f"tokens a round of the scenario, at depth {self.scenario.drafters.depth}", self.modelled, None),
        ]

    def frame(self) -> pd.DataFrame:
        """Return the rows as a frame: quantity, counted, the file says."""
        return pd.DataFrame(self.rows(), columns=["quantity", "counted", "the file says"])


def import_record(
    kind: str,
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    draft_ms: float | None = None,
    verify_ms: float | None = None,
    profile: str | Path | None = None,
    target: str = "",
    draft: str = "",
    fit: bool = True,
    depth: int | None = None,
    **options: Any,
) -> Imported:
    """Read records of another engine and write a scenario of them to `out`, with lengths beside it.

    `kind`: vllm, vllm-metrics, ...; the command's help lists them. Step times are stated, `draft_ms` a draft token and
    `verify_ms` a verification, or those of a `profile`, a shipped name or a file, or estimated of `target`
    (MODEL@DEVICE) and, on its device, `draft` (a model, or lookup); without any the file's own, or inferred from its
    load. `fit`: whether estimated times are scaled to meet the measured round, as of the same device. `depth`: of the
    scenario's drafts, at most as recorded. `options`: of the kind, as the command has them, such as `in_flight`. Raises
    InputError, in one line that names file, record, key and both values, for a file that contradicts itself, and for an
    option that the kind does not read.

    >>> import specfleet, tempfile
    >>> counts = '''{"metrics": {"speculative_decoding": {
    ...     "mean_acceptance_length": 1.2326, "draft_acceptance_rate": 0.0775, "acceptance_histogram": [39, 1, 0, 3],
    ...     "num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3}}}'''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     answer = Path(folder, "answer.json")
    ...     _ = answer.write_text(counts)
    ...     made = specfleet.import_record("vllm", answer, f"{folder}/mine.toml", draft_ms=2, verify_ms=25)
    ...     result = specfleet.simulate(made.scenario, workload={"requests": 20})
    >>> made.rounds, round(made.mean_acceptance_length, 4), made.stated
    (43, 1.2326, 1.2326)
    """
    if kind not in READERS:
        raise InputError(f"import {shortened(kind, quoted=False)}: unknown; allowed: {', '.join(READERS)}")
    paths, place = list(map(Path, [files] if isinstance(files, str | Path) else files)), Path(out)
    if not paths:
        raise InputError("files = []: needs a file, or a list of files")
    if depth is not None and depth < 1:
        raise InputError(f"depth = {depth}: needs a whole number from 1")
    stated = _stated(draft_ms, verify_ms, profile, place)
    if target and stated is not None:
        raise InputError("--target has the step times; leave --draft-ms, --verify-ms and --profile out")
    if draft and not target:
        raise InputError(f"--draft {shortened(draft, quoted=False)}: needs --target MODEL@DEVICE beside it")
    draft = drafter_named(draft, [target]) if draft else ""
    recording = _read(kind, paths, {"depth": depth} | options)
    recorded = recording.counts.depth if recording.counts else 0
    if depth is not None and depth > recorded:
        raise InputError(f"{paths[0]}: depth = {depth} goes beyond the recorded depth = {recorded}")
    if target:
        stated, notes = estimated(target, draft, recording, READERS[kind].engine, fit)
        recording = msgspec.structs.replace(recording, notes=(*recording.notes, *notes))
    return _written(place, paths, kind, recording, depth or recorded, stated, draft)


def _read(kind: str, paths: Sequence[Path], options: Mapping[str, Any]) -> Recording:
    """Read the files; InputError for an option that the kind does not read, and where a load asks for one."""
    reader, stated = READERS[kind], {name: value for name, value in options.items() if value is not None}
    if unread := [name for name in stated if name not in (*OF_ALL, *reader.options)]:
        read = ", ".join(map(_flag, dict.fromkeys((*OF_ALL, *reader.options))))
        raise InputError(f"{_flag(unread[0])}: import {kind} does not read it; it reads {read}")
    try:
        recording = reader.read(paths, **{name: value for name, value in stated.items() if name in reader.options})
    except InputError:
        name_foreign(kind, paths)
        raise
    if recording.load is not None and recording.load.asks:
        raise InputError(recording.load.asks)
    return recording


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _stated(draft_ms: float | None, verify_ms: float | None, profile: str | Path | None, out: Path) -> Times | None:
    """Return the step times that were stated, or the profile; None where nothing was."""
    if profile is not None:
        if draft_ms is not None or verify_ms is not None:
            raise InputError("--profile has the step times; leave --draft-ms and --verify-ms out")
        path, folder = Path(profile).resolve(), out.resolve().parent
        read_profile(str(profile), Path())
        if str(profile) in shipped_files("profiles"):
            return str(profile), f"the profile {profile}"
        name = path.relative_to(folder) if path.is_relative_to(folder) else path
        return str(name), f"the profile {shortened(str(profile))}"
    if draft_ms is None and verify_ms is None:
        return None
    draft_s, verify_s = _seconds("--draft-ms", draft_ms, may_be_zero=True), _seconds("--verify-ms", verify_ms)
    stated = "stated (--draft-ms a token, --verify-ms a verification)"
    times = HardwareProfile(
        name="stated",
        draft=StepTime(per_token_s=draft_s),
        verify=StepTime(base_s=verify_s),
        decode=StepTime(base_s=verify_s),
        sources={"draft": "stated", "verify": "stated", "decode": "assumed: as long as a verification"},
    )
    return times, f"{stated}; a plain decoding step is taken to last as long, a prefill no time"


def _seconds(option: str, time_ms: float | None, may_be_zero: bool = False) -> float:
    if time_ms is None or not 0 <= time_ms <= MAX_MS or (time_ms == 0 and not may_be_zero):
        stated = "" if time_ms is None else f" {time_ms}"
        least = "from 0" if may_be_zero else "above 0"
        raise InputError(f"{option}{stated}: needs milliseconds {least}, beside its companion")
    return time_ms / 1000


def _written(
    out: Path, paths: Sequence[Path], kind: str, recording: Recording, depth: int, stated: Times | None, draft: str
) -> Imported:
    """Write the scenario and the files beside it, and read it back."""
    counts, load = recording.counts, recording.load
    load = load and with_held(with_inferred(with_again(load, draft)))
    load = within(load, stated[0] if stated else "", depth) if load else load
    notes = tuple(note for part in (counts, recording, load) if part for note in part.notes)
    notes += tuple(_notes_on(load)) if load else ()
    engine, (profile, source) = READERS[kind].engine, stated or ("", "")
    at = counts.depth if counts else 0
    if stated is None and load and (inferred := inferred_profile(load, engine, (at, recording.shape.nodes(at)))):
        if depth != at:
            raise InputError(
                f"--depth {depth}: step times are inferred at depth {at} alone; give --target MODEL@DEVICE"
            )
        profile, source = inferred, inferred.sources["verify"].partition(", less")[0]
    writers = dict(_writers(recording, profile))
    beside = {name: out.with_name(f"{out.stem}-{name}") for name in writers}
    for path in (*beside.values(), out):
        if path.resolve() in [other.resolve() for other in paths]:
            raise InputError(f"{path}: would replace a file that is read; name another with -o")
        check_writable(path)
    for name, write in writers.items():
        write(beside[name])
    made = _scenario(out.stem, recording, depth, profile, beside)
    comments = list(_comments(kind, paths, recording, notes, source))
    inputs: tuple[str, ...] = ()
    if load is not None:
        server, trace = getattr(profile, "server", None), beside[TRACE].name if TRACE in beside else ""
        made, said = served(made, load, engine, server, trace)
        comments += textwrap.wrap(f"Load: {said}; {load.over}.", WIDTH, subsequent_indent="  ")
        if unknown := [name for name in SETTINGS if getattr(load, name) is None]:
            comments.append(f"Settings that the record does not have, assumed: {', '.join(unknown)}.")
        inputs = input_names(load, made.workload, stated is None or (MET in source and depth == at))
    named = beside[PROFILE].name if PROFILE in beside else profile if isinstance(profile, str) else ""
    write_file(out, "\n".join(scenario_lines(made, named, comments)) + "\n")
    scenario = read_scenario(out)
    model = scenario.acceptance
    return Imported(
        scenario=scenario,
        files=(*beside.values(), out),
        format=recording.format,
        rounds=counts.rounds if counts else 0,
        accepted=counts.accepted if counts else 0,
        mean_acceptance_length=counts.mean_length if counts else 1.0,
        stated=counts.stated if counts else None,
        modelled=expected_committed(model, depth) if isinstance(model, AcceptanceModel) else None,
        notes=notes if source else (*notes, NO_TIMES),
        load=load,
        inputs=inputs,
        times=source,
    )


def _notes_on(load: Load) -> Iterator[str]:
    if 0 < load.requests < FEW:
        yield f"requests finished: {load.requests}, which say little of a load"
    if load.unpredictable:
        yield f"not predicted: {load.unpredictable}"
    if load.shared_share:
        hits = f"prefix hits of {load.cached_share:.0%} are observed"
        yield f"{hits}; assumed: all prompts begin alike for as much of their length"


def _writers(recording: Recording, profile: HardwareProfile | str) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield the files beside the scenario that it needs, by name, and what writes each."""
    arrivals = recording.load.arrivals if recording.load else ()
    if recording.lengths:
        yield LENGTHS, partial(write_rows, TOKENS, recording.lengths)
    if arrivals:
        yield TRACE, partial(write_rows, ("arrived_at", *TOKENS), arrivals)
    if isinstance(profile, HardwareProfile) and profile.verify.roofline is not None:  # too long for a line
        yield PROFILE, partial(write_profile, profile)


def write_rows(columns: Sequence[str], rows: Sequence[tuple[float, ...]], path: Path) -> None:
    """Write a CSV file of numbers."""
    write_file(path, "".join(",".join(map(str, row)) + "\n" for row in (columns, *rows)))


def _scenario(
    name: str, recording: Recording, depth: int, profile: HardwareProfile | str, beside: Mapping[str, Path]
) -> Scenario:
    """Return the scenario of a recording; what it does not have stays at its default."""
    workload = Workload()
    if recording.lengths:
        workload = Workload(requests=len(recording.lengths), lengths=beside[LENGTHS].name)
    return Scenario(
        name=name.encode("ascii", "replace").decode(),
        profile=beside[PROFILE].name if PROFILE in beside else profile,
        drafters=Drafters(depth=depth, shape=recording.shape),
        acceptance=recording.counts.acceptance if recording.counts else None,
        workload=workload,
    )


def _comments(kind: str, read: Sequence[Path], recording: Recording, notes: Sequence[str], times: str) -> Iterator[str]:
    """Yield what the scenario's file says of where its numbers come from."""
    names = ", ".join(shortened(path.name) for path in read)
    said = [f"Written by `specfleet import {kind}`: {recording.format}, from {names}."]
    if (counts := recording.counts) is not None:
        says = "says nothing of it" if counts.stated is None else f"says {counts.stated:.4g}"
        mean = counts.mean_length
        said += [
            f"Acceptance: {counts.source}, recorded at depth {counts.depth}.",
            f"Mean acceptance length: {mean:.4f} with the bonus token, {mean - 1:.4f} without; the file {says}.",
        ]
        further = Geometric(float(f"{rate_of_mean(mean, counts.depth):.3g}"))
        said.append(f"Deeper drafts, at a constant rate (extrapolated): acceptance = {toml(further)}")
    lengths = "assumed"
    if recording.lengths:
        lengths = recording.lengths_from
    elif recording.load is not None:
        known = recording.load.prompt_tokens is not None
        lengths = "of the load; lognormal between their bounds" if known else "answers assumed, prompts by throughput"
    said += [
        f"Lengths: {lengths}.",
        f"Step times: {times}." if times else 'Step times: none yet. Name a profile, such as profile = "rtx-4090".',
        *(f"Note: {note}." for note in notes),
    ]
    for text in said:
        printable = "".join(character if character.isprintable() else "?" for character in text)
        yield from textwrap.wrap(printable, WIDTH, subsequent_indent="  ")
