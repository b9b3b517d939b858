"""A calibration says that its host is unsteady, measures impossible results again, and refuses them the second time."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from specfleet.calibration.measurements import Effort
from specfleet.calibration.run import plausible
from specfleet.calibration.stages import Asked
from specfleet.calibration.steadiness import DOUBTFUL, UNSTEADY, impossible_fit, passes_differ, unsteady
from specfleet.fleet.errors import UnsteadyHostError
from specfleet.fleet.times.labels import basis_of
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime


def profile(alone: float = 1.0, error: float = 0.02, differ: float = 0.0) -> HardwareProfile:
    step = StepTime(base_s=1.0)
    fits = {"verify": {"error": error}, "draft": {"error": 0.01}}
    measured = {"steps": fits, "passes_differ": differ, "alone": alone}
    return HardwareProfile("host", draft=step, verify=step, contention=(1.0, 2.0), measured=measured)


def bench_that_gives(*profiles: HardwareProfile, accepts: bool = False) -> Any:
    """A calibration that gives one profile after the other, and notes what it measures again and forgets."""
    left: Iterator[HardwareProfile] = iter(profiles)
    again: list[str] = []
    steps, forget = (lambda _number, _rows, why: again.append(why)), (lambda: again.append("forgotten"))
    return SimpleNamespace(
        profile=lambda: next(left), again=again, time_steps=steps, contend_again=again.append, forget_steps=forget,
        effort=Effort(), rows=[1], stages=SimpleNamespace(asked=Asked(accept_unsteady=accepts)),
    )  # fmt: skip


def test_passes_differ_by_their_means_without_delayed_steps() -> None:
    quick, slow = [1.0, 1.0, 1.0, 9.0], [1.2, 1.2, 1.2]
    assert passes_differ([[quick, slow, quick], [[2.0], [2.0], []]]) == pytest.approx(0.2)
    assert passes_differ([[], [[1.0]]]) == 0.0


def test_a_host_whose_passes_differ_is_unsteady() -> None:
    assert unsteady(profile(differ=UNSTEADY / 2)) is None
    assert unsteady(profile(differ=0.33)) == (
        "unsteady host: the same steps took 33% longer in one pass than in another; repeat on a quiet host"
    )
    for share in (0.9 * DOUBTFUL, DOUBTFUL):
        made = plausible(bench_that_gives(profile(differ=share)))
        assert (basis_of(made) == "measured on an unsteady host") == (share == DOUBTFUL)


def test_an_impossible_fit_is_measured_again_then_refused() -> None:
    assert impossible_fit(profile().measured["steps"]) is None
    bad = profile(error=0.37)
    assert "verify are 37% off" in str(impossible_fit(bad.measured["steps"]))
    once = bench_that_gives(bad, profile())
    assert plausible(once) == profile()
    assert once.again == [": the times of verify are 37% off their fit"]
    with pytest.raises(UnsteadyHostError, match=r"^unsteady host: .*, twice; no .* --accept-unsteady") as refused:
        plausible(bench_that_gives(bad, bad))
    assert refused.value.result == bad
    assert plausible(bench_that_gives(bad, bad, accepts=True)).provenance == {
        "unsteady host": "the times of verify are 37% off their fit"
    }


def test_a_slowed_lone_step_is_measured_again_and_said() -> None:
    """Its contention is relative to that step, so it cannot be refused for ever on a busy host."""
    slowed = profile(alone=3.8)
    once = bench_that_gives(slowed, profile())
    assert plausible(once) == profile()
    assert once.again == [" again: a step that runs alone was slowed"]
    assert plausible(bench_that_gives(slowed, slowed)) == slowed
    assert "3.8 times its own time" in str(unsteady(slowed))


def test_a_plausible_profile_is_measured_once() -> None:
    quiet = bench_that_gives(profile())
    assert plausible(quiet) == profile()
    assert not quiet.again
