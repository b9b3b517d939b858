"""The scenario that fits a calibration: its models, its profile, and devices as this host has them.

Acceptance is left to the profile, which measured it.
"""

from pathlib import Path

import msgspec

from specfleet.fleet.acceptance.signals import SignalFile, signals_path
from specfleet.fleet.files import write_file
from specfleet.fleet.scenario.named_files import absolute
from specfleet.fleet.scenario.reading import Given
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, SharedDevice, needs_of
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.fleet.times.left_out import MEANINGS, left_out_of
from specfleet.fleet.times.profile import HardwareProfile

HOST = "host"  # name of the device that all stations share
SLOWED = 1.1  # from this factor on, steps that run at once slow each other about as much as sharing does
REQUESTS = 48
WRITTEN = "Written by `specfleet calibrate`: what it measured, on the host that it measured."


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
