"""Delays around steps: what a profile states is what is read back from the simulated log."""

import numpy as np

from fleet.records.overheads import delays_in
from fleet.scenario.names import verifier_name
from sim.run import simulate
from tests.helpers.stars import star

PROFILE = {
    "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}, "turnaround_s": 0.07, "wake_up_s": 0.03, "dispatch_s": 0.02,
}  # fmt: skip


def test_delays_of_a_profile_are_read_back_from_the_log() -> None:
    run = simulate(star(profile=PROFILE, workload={"requests": 24, "new_tokens": 20}, verifiers={"count": 3}))
    delays = delays_in(run)
    np.testing.assert_allclose(delays["drafter"].queued_s, 0.07)
    np.testing.assert_allclose(delays["drafter"].after_s, 0.02)
    np.testing.assert_allclose(delays[verifier_name(0)].woken_s, 0.03)
    assert delays["drafter"].queued_s
    assert delays["drafter"].woken_s
    assert not delays[verifier_name(0)].queued_s
