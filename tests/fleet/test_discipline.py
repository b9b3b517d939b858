"""Start of a target's next round: rate limits, weights in virtual time, and a drafter's views."""

from specfleet.fleet.policies.order import Deadline, Fifo, Weighted
from specfleet.fleet.policies.route import RoundRobin
from specfleet.fleet.scenario.resolved import ResolvedDrafters
from specfleet.fleet.stations.drafter import Discipline, DrafterStation
from specfleet.fleet.stations.messages import DraftRequest, Instruction, View
from tests.helpers.steps import ended, started


def test_without_weights_and_limits_everybody_may_start_at_once() -> None:
    plain = Discipline(order=ResolvedDrafters().order)
    assert plain.plain
    assert not plain.limited
    assert (plain.virtual_start(3), plain.not_before_s(3, 7.0)) == (0.0, 0.0)
    assert plain.target_of(7) == 7
    assert Discipline(ResolvedDrafters().order, targets=3).target_of(7) == 1


def test_rate_limits_space_the_rounds_of_limited_targets_only() -> None:
    """Targets 0 and 1 have their own limits; the last entry, no limit, applies to all further ones."""
    held = Discipline(Fifo(limits_per_s=(0.5, 4.0, 0.0)))
    assert held.limited
    assert [held.not_before_s(0, now_s) for now_s in (1.0, 1.5, 9.0, 9.0)] == [1.0, 3.0, 9.0, 11.0]
    assert [held.not_before_s(1, 1.0) for _ in range(3)] == [1.0, 1.25, 1.5]
    assert [held.not_before_s(target, 1.0) for target in (2, 3, 3)] == [0.0, 0.0, 0.0]


def test_weights_space_rounds_in_virtual_time_with_bounded_credit() -> None:
    weighed = Discipline(Weighted((4.0, 1.0)))
    assert [weighed.virtual_start(0) for _ in range(3)] == [0.0, 0.25, 0.5]
    assert [weighed.virtual_start(target) for target in (1, 1, 2)] == [0.0, 1.0, 0.0]  # the last weight for the rest
    weighed.served(10.0)
    weighed.served(9.0)  # virtual time never goes back
    assert weighed.virtual_start(0) == 10.0 - 2 / 1.0
    assert weighed.virtual_start(5) == 10.0  # new: nothing to be behind with
    assert not weighed.plain


def test_deadlines_are_goals_after_arrivals() -> None:
    goals = Discipline(Deadline((0.5, 4.0)))
    assert [goals.due_s(target, 7.0) for target in (0, 1, 2)] == [7.5, 11.0, 11.0]  # the last goal for the rest
    assert not goals.plain


def test_views_report_what_waits_and_what_runs() -> None:
    hub = DrafterStation("drafter.1", ResolvedDrafters(route=RoundRobin()), drafter=1)

    def run_step() -> list[Instruction]:
        started(hub)
        return ended(hub)

    assert hub.handle(DraftRequest(0, 0, epoch=1, base=11, opening=True), 0.0) == [View(1, 1, 1)]
    assert run_step() == []  # the prefill; its draft follows
    assert run_step()[-1] == View(1, 2, 0)
    assert hub.handle(DraftRequest(1, 0, epoch=1, base=11, opening=True), 0.0) == [View(1, 3, 1)]
    started(hub)
    assert hub.handle(DraftRequest(2, 0, epoch=1, base=11, opening=True), 0.0) == [View(1, 4, 2)]
