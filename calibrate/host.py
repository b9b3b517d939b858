"""Measure a model pair on this host: a hardware profile, and beside it a scenario that fits.

The scenario has the pair's models, its profile, and devices as this host has them. Acceptance is left to the profile,
which measured it.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from specfleet.calibration.steadiness import impossible_fit
from specfleet.fleet.acceptance.signals import SignalFile, signals_path
from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.files import check_writable, is_stream, write_file
from specfleet.fleet.scenario.changes import Changes, pairs_of
from specfleet.fleet.scenario.named_files import DEMO_PROMPTS, absolute
from specfleet.fleet.scenario.names import Engine
from specfleet.fleet.scenario.reading import Given, make_scenario, scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, SharedDevice, needs_of
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.fleet.times.labels import MEANINGS, left_out_of, unsteady_of
from specfleet.fleet.times.profile import HardwareProfile, write_profile

OWN = {"name": "calibration", "workload": {"prompt_tokens": 128, "new_tokens": 96}}
"""What is measured where no scenario is given: a chain of depth 5 on these lengths."""
HOST = "host"  # name of the device that all stations share
SLOWED = 1.1  # from this factor on, steps that run at once slow each other about as much as sharing does
REQUESTS = 48
WRITTEN = "Written by `specfleet calibrate`: what it measured, on the host that it measured."


def calibrate(
    scenario: Given | None = None,
    changes: Changes | None = None,
    *,
    prompts: str = "demo/calibration",
    quick: bool = False,
    without: str | Sequence[str] = (),
    accept_unsteady: bool = False,
    engine: Engine | None = None,
    server: str | Sequence[str] = (),
    out: str | Path | None = None,
    report: Callable[[str], None] = lambda _stage: None,
    note: Callable[[str], None] = lambda _line: None,
    **keys: Any,
) -> HardwareProfile:
    """Measure a model pair on this host and return its hardware profile, with fits and residuals.

    `scenario`: what to measure; without one a pair, by default the demo pair. `changes` and keywords as in `simulate`.
    `prompts`: "demo/calibration", or a JSON Lines file; use other prompts than those of the runs to predict. `quick`:
    fewer repetitions. `without`: stages to leave out, by their names or the beginnings of these.
    `accept_unsteady`: give a profile also where the host gives impossible results; it says so. Acceptance is recorded
    as the scenario samples. `engine`: one of others, such as "vllm"; it needs a scenario with drafts on the target's
    device. `server`: addresses of running, OpenAI-compatible servers in its place, one for each draft length:
    "4=http://localhost:8000", "0=..." without drafts; without a number the scenario's. `out`: where to write the
    profile (JSON). Beside it, unless there is one, come a scenario that fits it, under the same name with `.toml`, and,
    with `.signals.parquet`, the signals of chains that are drafted on a target's device. `report` is called with the
    name of each stage as it begins.

    Each stage's result is kept in a folder beside the profile, under its name with `.calibration`, until the profile is
    written. The same call on the same host then measures only the rest, and what made a fit impossible. A stage without
    memory is left out: the profile says what it lacks, and the folder stays. `note` is called with a line on each of
    these, on tiers, which are not measured, and on prompts of the scenario that `prompts` leaves out for those of the
    demo.

    Needs `specfleet[engine]`. Raises InputError for bad input, OutputError if the profile cannot be written, and
    UnsteadyHostError if the host gives impossible results, also when measured again; their `result` is the profile.

        if __name__ == "__main__":  # its processes import the script that starts them
            profile = specfleet.calibrate(drafters={"model": "models/small"}, verifiers={"model": "models/large"})
            specfleet.simulate("star", profile=profile)
    """
    from specfleet.calibration import run
    from specfleet.calibration.loops import other_engine, servers_of
    from specfleet.calibration.measurements import QUICK, Effort
    from specfleet.calibration.stages import Asked, clear

    wanted = fitted_scenario(scenario, changes, prompts, keys)
    urls = servers_of([server] if isinstance(server, str) else server, wanted) if server else {}
    if urls and engine is not None:
        raise InputError(f"engine = {engine!r}: a running server is an engine by itself; leave one of them out")
    if prompts in DEMO_PROMPTS and wanted.workload.prompts not in DEMO_PROMPTS:
        theirs = wanted.workload.prompts
        note(f"note: times and acceptance are of {prompts}, not {theirs!r}; --prompts FILE names others")
    workload = msgspec.structs.replace(wanted.workload, prompts=prompts)
    drafters, verifiers = (msgspec.structs.replace(side, tiers=()) for side in (wanted.drafters, wanted.verifiers))
    if (drafters, verifiers) != (wanted.drafters, wanted.verifiers):
        pair = f"drafters.model = {drafters.model!r} beside verifiers.model = {verifiers.model!r}"
        note(f"note: measured is {pair}, and no tier; calibrate the models of tiers by themselves")
    measured = msgspec.structs.replace(wanted, workload=workload, drafters=drafters, verifiers=verifiers)
    asked = Asked((without,) if isinstance(without, str) else tuple(without), accept_unsteady)
    file = None if out is None else Path(out)
    if file is not None:
        check_writable(file)
    with tempfile.TemporaryDirectory() as scratch:
        signals = signals_path(file or Path(scratch) / "profile")
        kept = stages_folder(file) or Path(scratch)
        effort = QUICK if quick else Effort()
        with other_engine(engine, urls) as elsewhere:
            bench = run.bench_of(measured, kept, effort, report, note, elsewhere, asked, keep=True)
            profile = run.calibrate(measured, bench, signals)
    if file is not None:
        try:
            write_profile(profile, file)
            fits = wanted if scenario is not None else scenario_of_pair(wanted, profile)
            path = fitting_path(file, scenario)
            write_fitting(fits, profile, file.name, path)
        except OutputError as error:
            error.result = profile
            raise
        if not (left_out_of(profile) or (unsteady_of(profile) and impossible_fit(profile.measured["steps"]))):
            clear(kept)
    return profile


def stages_folder(out: Path | None) -> Path | None:
    """Return the folder that keeps the stages of a profile's calibration; None for a device or a pipe.

    >>> stages_folder(Path("runs/pair.json"))
    PosixPath('runs/pair.calibration')
    """
    return None if out is None or is_stream(out) else out.with_suffix(".calibration")


def fitted_scenario(
    scenario: Given | None, changes: Changes | None, prompts: str, keys: Mapping[str, Any] | None = None
) -> Scenario:
    """Return the scenario that a calibration is for; without one, that of a pair, on prompts of the same kind.

    >>> fitted_scenario(None, {"drafters.depth": 3}, "demo/calibration").workload.prompts
    'demo/evaluation'
    """
    if scenario is not None:
        return scenario_of(scenario, changes, **(keys or {}))
    runs_on = "demo/evaluation" if prompts == "demo/calibration" else prompts
    pairs = [("workload.prompts", runs_on), *pairs_of(changes or ())]
    return scenario_of(make_scenario(OWN, "calibrate"), pairs, **(keys or {}))


def scenario_of_pair(pair: Scenario, profile: HardwareProfile) -> Scenario:
    """Return a scenario of a calibrated pair, with as many targets as the calibration let run beside the drafter."""
    verifiers = msgspec.structs.replace(pair.verifiers, count=max(1, len(profile.contention) - 1))
    workload = msgspec.structs.replace(pair.workload, requests=REQUESTS)
    return msgspec.structs.replace(pair, name="pair", verifiers=verifiers, workload=workload)


def fitting(scenario: Scenario, profile: HardwareProfile, profile_file: str = "profile.json") -> Scenario:
    """Return the scenario with what the profile measured on its host: times, acceptance, and shared devices.

    Devices that it names stay; targets for accelerators elsewhere, and those that draft themselves, need none.
    """
    replace = msgspec.structs.replace
    drafters, verifiers = replace(scenario.drafters, tiers=(), profile=""), scenario.verifiers
    devices = scenario.devices
    if verifiers.kind == "real":  # their times and links were measured
        verifiers = replace(verifiers, tiers=(), verify=None, profile="")
        if scenario.drafters.place == "own" and not devices and shares_device(scenario, profile):
            devices = {HOST: SharedDevice("turns")}
            drafters, verifiers = replace(drafters, device=HOST), replace(verifiers, device=HOST)
    fits = replace(scenario, profile=profile, drafters=drafters, verifiers=verifiers, devices=devices, link=None)
    signals = None if needs_of(scenario) == "lengths" else SignalFile(signals_path(Path(profile_file)).name)
    return replace(absolute(fits), acceptance=signals)


def shares_device(scenario: Scenario, profile: HardwareProfile) -> bool:
    """Whether the scenario's stations would slow each other on the host that the profile was measured on.

    They do where there are fewer GPUs than models. Without a GPU they do where there are fewer cores than models, and
    where steps at once were measured to be slow.
    """
    models, host = resolve(scenario).models, profile.provenance
    if "gpu" in host:
        return int(host.get("gpus", 1)) < models
    at_once = profile.contention[min(models, len(profile.contention)) - 1] / profile.contention[0]
    return int(host.get("cores", models)) < models or at_once >= SLOWED


def fitting_path(out: Path, source: Given | None = None) -> Path:
    """Return where the scenario that fits a profile goes: beside it, under its name with `.toml`.

    It ends in `-fits.toml` where the profile has that name, or the scenario that was given.
    """
    path = out.with_suffix(".toml")
    taken = [out, *([Path(source)] if isinstance(source, str | Path) else [])]
    is_taken = path.resolve() in [other.resolve() for other in taken]
    return out.with_name(f"{out.stem}-fits.toml") if is_taken else path


def write_fitting(scenario: Scenario, profile: HardwareProfile, profile_file: str, path: Path) -> bool:
    """Write the scenario that fits a profile, which is in `profile_file` beside it; False where a file is there."""
    if path.exists():
        return False
    fits, comments = fitting(scenario, profile, profile_file), [WRITTEN]
    if fits.devices != scenario.devices:
        slower = [f"x {factor:.2f} with {count}" for count, factor in enumerate(profile.contention, start=1)]
        factors = ", ".join(slower) if len(slower) > 1 else ""
        cores = profile.provenance.get("gpu") or f"{profile.provenance.get('cores', 'some')} cores"
        comments.append(f"All stations run on this host ({cores}): one step at a time, in the order of asking.")
        longer = f"they were measured to take longer then: {factors}" if factors else "what this costs was not measured"
        comments.append(f'"contended" lets steps run at once; {longer}.')
    comments += [
        f"The profile lacks {MEANINGS[missing]}: {reason}." for missing, reason in left_out_of(profile).items()
    ]
    write_file(path, "\n".join(scenario_lines(fits, profile_file, comments)) + "\n")
    return True
