"""What a scenario says that its author may not mean: notes beside a result, a line each.

Nothing here is an error. The command line prints each as `note: ...` on standard error; results keep them in `.notes`.
"""

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from fleet.chance.acceptance import PerPosition, expected_committed
from fleet.errors import InputError
from fleet.scenario.facts import accepts, mean_accepted, replaced_acceptance
from fleet.scenario.lengths import TEXTS
from fleet.scenario.names import World
from fleet.scenario.scenario import Scenario
from fleet.scenario.sides import SIDES, profile_of, shared_profile
from fleet.scenario.unread import READ_IN_A_BATCH
from fleet.scenario.workload import mean_lengths
from fleet.times.labels import basis_of, estimated_numbers, warning_of
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime
from sim.predict import predict

NEARLY = 0.01  # relative difference of two mean lengths that nobody needs to be told of
FEWEST_FALLING = 3  # rates; two that fall say little
OF_TARGET = {"verify": "verify", "prefill": "verify_prefill", "decode": "decode"}  # scenario's key: the profile's


def notes_of(scenario: Scenario, world: World = "sim") -> tuple[str, ...]:
    """Return the notes on a scenario that ran in that world, a line each; none for most.

    >>> from fleet.scenario.reading import scenario_of
    >>> notes_of(scenario_of("star", {"verifiers.verify.base_s": 0.04}))[0][:24]
    'verifiers.verify = 40 ms'
    """
    notes = [] if world == "engine" else [*_estimated(scenario), *_falling_rates(scenario)]
    notes += [] if world == "engine" else [*_mixed_profiles(scenario)]
    if world == "sim" or scenario.verifiers.kind == "replayed":  # a real target takes the time that it takes
        notes += [*_mixed_times(scenario), *_mixed_tiers(scenario)]
    return (*notes, *_absent_tiers(scenario), *_replaced_acceptance(scenario), *_published_texts(scenario))


def notes_on_prediction(scenario: Scenario) -> tuple[str, ...]:
    """Return the notes on what the equations say of a scenario: those on the scenario, and on a missing decode time."""
    profile, decode = profile_of(scenario, "verifiers"), scenario.verifiers.decode
    known = decode or (profile.decode if profile is not None else None)
    if known is not None and known.mean_s(1, _middle_context(scenario)) == 0:
        return (*notes_of(scenario), "a plain decoding step takes no time here (decode is not given), so N_max is 0")
    return notes_of(scenario)


def _estimated(scenario: Scenario) -> Iterator[str]:
    """Note step times that follow from a device's figures and nobody's measurement."""
    profiles = {profile.name: profile for side in SIDES if (profile := profile_of(scenario, side)) is not None}
    for name, profile in profiles.items():
        if warning := warning_of(basis_of(profile)):
            yield (
                f"profile {name}: {warning} ({', '.join(estimated_numbers(profile))}); delays between "
                "steps and links are none unless the scenario gives them. `specfleet reproduce estimates` says how far "
                "such estimates are off"
            )


def _mixed_profiles(scenario: Scenario) -> Iterator[str]:
    """Note what the scenario's profile still tells where a side has another one."""
    shared, sides = shared_profile(scenario), [profile_of(scenario, side) for side in SIDES]
    if shared is None or all(own in (None, shared) for own in sides) or not scenario.drafters.count:
        return
    kept = [name for name, given in (("the link", scenario.link), ("acceptance", scenario.acceptance)) if given is None]
    if kept:
        yield (
            f"{' and '.join(kept)} {'is' if len(kept) == 1 else 'are'} profile {shared.name}'s, measured between other "
            "machines than these; give [link] and [acceptance] where these are known"
        )


def _absent_tiers(scenario: Scenario) -> Iterator[str]:
    """Note tiers that begin beyond the last station: no error, since sweeps over counts have them."""
    for name, side in (("drafters", scenario.drafters), ("verifiers", scenario.verifiers)):
        for tier in side.tiers:
            if tier.first > side.count:
                yield f"{name}.tiers: that of first = {tier.first} is nobody's, with {name}.count = {side.count}"


def _published_texts(scenario: Scenario) -> Iterator[str]:
    """Note what of the lengths is published, and what assumed."""
    name = scenario.workload.lengths
    if name in TEXTS:
        yield f"workload.lengths = {name!r}: {TEXTS[name].source}"


def _replaced_acceptance(scenario: Scenario) -> Iterator[str]:
    """Note an acceptance that stands in place of one that the profile measured, with what both come to."""
    replaced, given, depth = replaced_acceptance(scenario), scenario.acceptance, scenario.drafters.depth
    if replaced is None or given is None or not isinstance(scenario.profile, HardwareProfile):
        return
    ours, measured = mean_accepted(given, depth), mean_accepted(replaced, depth)
    if ours is None or measured is None or abs(ours - measured) > NEARLY * measured:
        yield (
            f"[acceptance] is the scenario's, {accepts(given, depth)}, and replaces what profile "
            f"{scenario.profile.name} measured, {accepts(replaced, depth)}; leave the table out to simulate that"
        )


def _falling_rates(scenario: Scenario) -> Iterator[str]:
    """Note rates that fall from place to place, as those that engines print do, which are another thing."""
    model = scenario.acceptance
    if not isinstance(model, PerPosition) or model.rates is None or len(model.rates) < FEWEST_FALLING:
        return
    if all(here < before for before, here in pairwise(model.rates)):
        depth = min(scenario.drafters.depth, len(model.rates))
        as_given = expected_committed(model, depth)
        as_printed = expected_committed(PerPosition(survival=model.rates), depth)
        yield (
            f"acceptance.rates fall steadily, from {model.rates[0]:g} to {model.rates[-1]:g}. They are taken as rates "
            f"given that all before were accepted: {as_given:.2f} tokens a round at depth {depth}, bonus included. If "
            "they are shares of all drafts, as vLLM prints per position, write them as acceptance.survival: "
            f"{as_printed:.2f}. To tell: an engine's mean acceptance length is 1 + the sum of the shares that it prints"
        )


def _mixed_times(scenario: Scenario) -> Iterator[str]:
    """Note a target whose times come in part from the scenario and in part from the profile."""
    profile, verifiers = profile_of(scenario, "verifiers"), scenario.verifiers
    read = [name for name in OF_TARGET if scenario.batch is None or name in READ_IN_A_BATCH["verifiers"]]
    given = {name: getattr(verifiers, name) for name in read if getattr(verifiers, name) is not None}
    if profile is None or len(given) in (0, len(read)):
        return
    own = [
        f"verifiers.{name} = {_ms(scenario, name, time)} is the scenario's "
        f"(the profile's: {_ms(scenario, name, getattr(profile, OF_TARGET[name]))})"
        for name, time in given.items()
    ]
    left = [name for name in read if name not in given]
    theirs = [f"{name} = {_ms(scenario, name, getattr(profile, OF_TARGET[name]))}" for name in left]
    yield (
        f"{', '.join(own)}; {' and '.join(theirs)} {'is' if len(left) == 1 else 'are'} still the profile's. "
        f"{_consequence(scenario, given)}give {' and '.join(f'verifiers.{name}' for name in left)}, too, where the "
        "target is another machine"
    )


def _consequence(scenario: Scenario, given: dict[str, StepTime]) -> str:
    """Say what rests on both sources: N_max, which holds speculation against plain decoding, or the first token."""
    if scenario.batch is not None or ("verify" in given) == ("decode" in given):
        return "The time to the first token rests on both: "
    plain = msgspec.structs.replace(scenario.verifiers, verify=None, prefill=None, decode=None)
    try:
        mixed = predict(scenario).N_max
        alone = predict(msgspec.structs.replace(scenario, verifiers=plain)).N_max
    except InputError:  # no star: there is no N_max
        return "What speculation gains over plain decoding rests on both: "
    return f"N_max = {mixed} rests on both, and by the profile alone it is {alone}: "


def _mixed_tiers(scenario: Scenario) -> Iterator[str]:
    """Note tiers whose devices differ in one step only: the others are the first device's."""
    profile = profile_of(scenario, "verifiers")
    if profile is None:
        return
    for tier in scenario.verifiers.tiers:
        if tier.verify is not None:
            own, others = _ms(scenario, "verify", tier.verify), ("prefill", "decode")
            left = [f"{name} = {_ms(scenario, name, _of_target(scenario, name, profile))}" for name in others]
            yield (
                f"verifiers.tiers: targets {tier.first} and above verify in {own}; {' and '.join(left)} are those of "
                "the targets before them"
            )


def _of_target(scenario: Scenario, name: str, profile: HardwareProfile) -> StepTime:
    time: StepTime = getattr(scenario.verifiers, name) or getattr(profile, OF_TARGET[name])
    return time


def _ms(scenario: Scenario, name: str, time: StepTime) -> str:
    """The mean of a target's step in milliseconds, at the middle of the scenario's texts."""
    if name == "prefill":
        mean_s = time.mean_s(mean_lengths(scenario.workload)[0])
    else:
        fed = scenario.drafters.shape.nodes(scenario.drafters.depth) + 1 if name == "verify" else 1
        mean_s = time.mean_s(fed, _middle_context(scenario))
    return f"{1000 * mean_s:.3g} ms"


def _middle_context(scenario: Scenario) -> float:
    prompt, answer = mean_lengths(scenario.workload)
    return prompt + answer / 2
