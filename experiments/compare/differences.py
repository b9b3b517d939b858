"""Differences in the setup of two runs, in lines. They explain most of the error, so they are printed before it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from specfleet.fleet.acceptance.fits import MeanLength, mean_interval
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.changes import flat
from specfleet.fleet.scenario.facts import accepts, crowds, is_stated, replaced_acceptance
from specfleet.fleet.scenario.links import holds_links
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.sides import SIDES, profile_of, without_profiles

FREE = ("name", "seed")  # in reruns
TIMED = (*FREE, "profile", "acceptance")  # what playback replaces
SPOKEN_OF = (*TIMED, "devices", "drafters.device", "verifiers.device")  # in lines of their own
MODELS = ("drafters.model", "verifiers.model")  # a simulation loads none: the source of the times is in its profile


def differences(first: Run, second: Run) -> list[str]:
    """Return the differences of two runs: profile, acceptance, devices, prompts and other keys.

    The second is a measured one, where there is one.
    """
    known = [*_profile(first, second), *_acceptance(first, second), *_devices(first, second)]
    return list(dict.fromkeys([*known, *keys_apart(first, second)]))


def _profile(first: Run, second: Run) -> Iterator[str]:
    """Yield the source of a simulation's step times, and whether it is the measured models."""
    profile = first.header.fleet.profile
    if first.header.world != "sim" or not profile:
        return
    if first.warning:
        yield f"profile: {profile}: {first.warning}"
    if second.header.world == "sim":
        if first.header.profile_digest != second.header.profile_digest:
            names = f"{profile} ({first.header.profile_digest}), {second.header.fleet.profile or 'none'}"
            yield f"profile: {names} ({second.header.profile_digest or 'no times'})"
    elif "drafters" not in second.header.replayed:
        yield from _models(first.header.scenario, second.header.scenario)
    else:
        delayed = holds_links(second.header.fleet)
        yield (
            f"{'delays' if delayed else 'links and delays'}: replayed stations have their own host's, "
            f"and the simulation had those of profile {profile}, or the scenario's"
            + ("; links were held back as stated" if delayed else "")
        )


def _models(simulated: Scenario, ran: Scenario) -> Iterator[str]:
    """Whether profiles are of the models and not of the prompts that ran."""
    for side, key in zip(SIDES, ("drafter_model", "target_model"), strict=True):
        profile, model = profile_of(simulated, side), getattr(ran, side).model
        if profile is None or not getattr(simulated, side).count:
            continue
        origin = profile.provenance
        if key not in origin:
            yield f"profile: {profile.name} was not calibrated on the models that ran"
        elif not _same_file(origin[key], model):
            yield f"profile: {profile.name} was calibrated on {side}.model = {origin[key]}, and {model} ran"
        if _same_file(origin.get("prompts_file", ""), prompts := ran.workload.prompts):
            yield f"prompts: {profile.name} was calibrated on those of the run, {prompts}: it has seen them"


def _same_file(path: str, other: str) -> bool:
    return path == other or Path(path).resolve() == Path(other).resolve()


def _acceptance(first: Run, second: Run) -> Iterator[str]:
    """Accepted tokens a verification, where the two differ beyond chance, or a measured acceptance was replaced."""
    length, other = mean_length_of(first), mean_length_of(second)
    if length is None or other is None:
        return
    halves = (length.high - length.low) / 2, (other.high - other.low) / 2
    simulated = first.header.world == "sim"
    replaced = replaced_acceptance(first.header.scenario) if simulated else None
    if abs(length.mean - other.mean) <= float(np.hypot(*halves)) and replaced is None:
        return
    ours, theirs = (f"{mean.mean:.2f} ({mean.low:.2f} .. {mean.high:.2f})" for mean in (length, other))
    yield f"acceptance: {ours} tokens a verification {_source(first)}; {theirs} {_source(second)}"


def _source(run: Run) -> str:
    scenario, depth = run.header.scenario, run.header.scenario.drafters.depth
    if run.header.world == "engine":
        return "drawn at replayed targets" if "drafters" in run.header.replayed else "accepted by the models"
    fleet = run.header.fleet
    assert fleet.acceptance is not None  # nothing is simulated without
    effect = accepts(fleet.acceptance, depth)
    if not is_stated(scenario.acceptance):
        return f"simulated from profile {fleet.profile}'s ({effect})"
    instead = "" if replaced_acceptance(scenario) is None else f" in place of profile {fleet.profile}'s"
    return f"simulated from the scenario's [acceptance]{instead} ({effect})"


def mean_length_of(run: Run) -> MeanLength | None:
    """Return the mean accepted length of a run's verifications, with its interval; None for fewer than two requests."""
    rows = run.frame()
    rows = rows[(rows.event == "done") & (rows.kind == "verify")]
    try:
        return mean_interval([part.accepted.tolist() for _, part in rows.groupby(["tag", "request"])])
    except InputError:
        return None


def _devices(first: Run, second: Run) -> Iterator[str]:
    """Yield which roles shared a device, and whether the host has fewer cores than the run had models."""
    shared = sharing(first.header.fleet), sharing(second.header.fleet)
    if shared[0] != shared[1]:
        names = _names(first, second)
        yield f"devices: {shared[0]} in {names[0]}, {shared[1]} in {names[1]}"
        return
    fleet, cores = second.header.fleet, int(second.header.host.get("cores", 0))
    measured_on_cores = second.header.world == "engine" and "gpus" not in second.header.host
    if measured_on_cores and cores and crowds(fleet, cores):
        yield (
            f"devices: {fleet.models} models of the run shared {cores} cores, and were simulated with one each; "
            'name the device that they share: [devices.host] sharing = "turns" or "contended"'
        )


def _names(first: Run, second: Run) -> tuple[str, str]:
    worlds = first.header.world, second.header.world
    return ("the simulation", "the run") if worlds == ("sim", "engine") else ("the first", "the second")


def sharing(fleet: Fleet) -> str:
    """Say in words which stations share which device, and how.

    >>> from specfleet.fleet.scenario.reading import make_scenario
    >>> from specfleet.fleet.scenario.resolve import resolve
    >>> sharing(resolve(make_scenario({})))
    'a device of its own for every station'
    """
    stations: dict[str, list[str]] = {}
    for role, place in (("drafters", fleet.drafters), ("targets", fleet.verifiers)):
        if place.device and place.count:
            stations.setdefault(place.device, []).append(role)
    shared = [f"{' and '.join(roles)} share one ({fleet.devices[name].sharing})" for name, roles in stations.items()]
    return "; ".join(shared) or "a device of its own for every station"


def keys_apart(first: Run, second: Run, but: tuple[str, ...] = SPOKEN_OF) -> Iterator[str]:
    """Yield all keys of the scenarios that are not the same, a line each, `but` some and what begins with them."""
    keys, others = (
        dict(flat(msgspec.to_builtins(without_profiles(run.header.scenario)))) | {"profile": run.header.profile_digest}
        for run in (first, second)
    )
    names = _names(first, second)
    both_loaded = first.header.world == second.header.world == "engine"
    for key in sorted(keys.keys() | others.keys()):
        if key.startswith(but) or (key in MODELS and not both_loaded):
            continue
        if keys.get(key) != others.get(key):
            yield f"{key}: {keys.get(key, 'none')} in {names[0]}, {others.get(key, 'none')} in {names[1]}"
