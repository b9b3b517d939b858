"""The reference pace: how fast the host was when a profile's times were taken."""

import msgspec

from calibrate.steps import TAG, some_hidden
from engine.decoding.draft import Drafter
from engine.decoding.verify import Target
from engine.node.control import Control
from fleet.times.effects import Turns
from fleet.times.pace import typical_control_s
from fleet.times.profile import STEPS, HardwareProfile

CONTROLS = 50  # that make the reference: a second's
STEPS_A_STREAM = 100  # of each kind, so that the context stays as short as in service


def control_beside_steps_s(drafter: Drafter, target: Target, prompt: list[int]) -> float:
    """Return the typical time of the control computation as a station takes it: right after a step, and
    as seldom. The reference pace.

    In a loop of its own the control would be faster, with all of the caches for itself.
    """
    control = Control()
    controls_s: list[float] = []
    while len(controls_s) < CONTROLS:
        drafter.open(TAG, list(prompt))
        drafter.prefill(TAG, hidden=some_hidden(drafter, len(prompt) - 1))
        target.open(TAG, list(prompt))
        target.decode([TAG])
        for _ in range(STEPS_A_STREAM):
            drafter.draft([TAG], [1])
            controls_s.append(control.after_step_s())
            target.decode([TAG])
            controls_s.append(control.after_step_s())
        drafter.release(TAG)
        target.release(TAG)
        controls_s = [control_s for control_s in controls_s if control_s]
    return typical_control_s(controls_s)


def at_pace(profile: HardwareProfile, slowness: float) -> HardwareProfile:
    """The same measurements, referred to another pace of the host: `slowness` times slower than the reference.

    The first control computations set the reference, and the host may have been slow just then; the pace of all fleets
    is typical.
    """
    replace = msgspec.structs.replace
    load, link, busy_link = profile.recent_load, profile.link, profile.busy_link

    def paid(turns: Turns) -> Turns:
        return replace(
            turns,
            handover_s=slowness * turns.handover_s,
            wake_up_s=None if turns.wake_up_s is None else slowness * turns.wake_up_s,
            dispatch_s=None if turns.dispatch_s is None else slowness * turns.dispatch_s,
            link=turns.link and replace(turns.link, latency_s=slowness * turns.link.latency_s),
        )

    return replace(
        profile,
        **{name: getattr(profile, name).slowed(slowness) for name in STEPS},
        turnaround_s=slowness * profile.turnaround_s,
        wake_up_s=slowness * profile.wake_up_s,
        dispatch_s=slowness * profile.dispatch_s,
        decode_turnaround_s=slowness * profile.decode_turnaround_s,
        link=replace(link, latency_s=slowness * link.latency_s),
        busy_link=busy_link and replace(busy_link, latency_s=slowness * busy_link.latency_s),
        turns=tuple(map(paid, profile.turns)),
        one_process=paid(profile.one_process),
        recent_load=load and replace(load, paces=tuple(pace / slowness for pace in load.paces)),
        control_s=slowness * profile.control_s,
    )
