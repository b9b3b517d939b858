"""Continuous batching: hand-made traces of vLLM's rules, and what holds for all."""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.policies.continuous import ContinuousBatching, Row, Schedule, Share, after_step

K = 3


def tokens_of(step: Schedule) -> dict[int, int]:
    return {share.tag: share.tokens for share in step.shares}


def stepped(row: Row, share: Share, accepted: int, drafts: int) -> Row:
    """The row after its step, with so many drafts for its next one."""
    return msgspec.structs.replace(after_step(row, share, accepted), drafts=drafts if share.samples else 0)


def next_rows(step: Schedule, accepted: int = 0, drafts: int = K) -> list[Row]:
    """Running rows after a step in which every verification accepts that many drafts."""
    shares = {share.tag: share for share in step.shares}
    return [
        stepped(row, shares[row.tag], min(accepted, shares[row.tag].drafts), drafts) if row.tag in shares else row
        for row in step.running
    ]


def left(step: Schedule, waiting: Iterable[Row]) -> list[Row]:
    """Rows that wait after a step, of those that waited before."""
    return [*reversed(step.preempted), *waiting][step.admitted :]


def test_a_row_without_budget_keeps_its_drafts() -> None:
    step = ContinuousBatching(8, 4).schedule([Row(tag, 31, 30, K) for tag in range(2)], [])
    assert tokens_of(step) == {0: 4}
    assert step.running[1] == Row(1, 31, 30, K)


@pytest.mark.parametrize("lookahead", [K, 0])
def test_rejected_drafts_keep_their_blocks(lookahead: int) -> None:
    rule = ContinuousBatching(8, 8192, kv_blocks=100, lookahead=lookahead)
    step = rule.schedule([], [Row(0, 30)])
    assert [row.blocks for row in step.running] == [3 if lookahead else 2]  # vLLM 0.32 reserves from the admission on
    rows = next_rows(step)
    for computed in (33, 36):
        step = rule.schedule(rows, [])
        assert [row.blocks for row in step.running] == [3]
        rows = next_rows(step, accepted=2)
        assert rows[0].computed == computed


def test_the_row_admitted_last_is_preempted() -> None:
    """Six blocks, two each; A needs a third. Nobody is admitted in that step, though a block is free."""
    rule = ContinuousBatching(8, 8192, kv_blocks=6)
    A, B, C, D = range(4)
    step = rule.schedule([Row(A, 33, 32, 0, 2), Row(B, 20, 19, 0, 2), Row(C, 25, 24, 0, 2)], [Row(D, 3)])
    assert tokens_of(step) == {A: 1, B: 1}
    assert step.preempted == (Row(C, 25),)
    assert [row.blocks for row in step.running] == [3, 2]
    waiting = left(step, [Row(D, 3)])
    assert waiting == [Row(C, 25), Row(D, 3)]
    again = rule.schedule(next_rows(step, drafts=0), waiting)
    assert tokens_of(again) == {A: 1, B: 1}  # C needs two blocks, and D does not overtake it


def test_a_row_may_preempt_itself() -> None:
    rule = ContinuousBatching(8, 8192, kv_blocks=3)
    step = rule.schedule([Row(0, 17, 16, 0, 1), Row(1, 17, 16, 0, 1)], [])
    assert (tokens_of(step), step.preempted) == ({0: 1}, (Row(1, 17),))


def test_prompts_that_come_first_leave_decoding_rows_out() -> None:
    """Budget 16: A decodes, C has 20 of 40 prompt tokens, D waits with a prompt of 5; then nobody waits."""
    rule = ContinuousBatching(8, 16, prefill_first=True)
    A, C, D = range(3)
    running, waiting = [Row(A, 31, 30), Row(C, 40, 20)], [Row(D, 5)]
    steps = []
    for _ in range(3):
        step = rule.schedule(running, waiting)
        steps.append(tokens_of(step))
        running, waiting = next_rows(step, drafts=0), left(step, waiting)
    assert steps == [{C: 16}, {C: 4, D: 5}, {A: 1, C: 1, D: 1}]
    full = ContinuousBatching(8, 16, kv_blocks=4, prefill_first=True)
    step = full.schedule([Row(A, 31, 30, 0, 2)], [Row(D, 40)])
    assert tokens_of(step) == {A: 1}  # D does not fit, and A goes on


def test_a_prompt_that_preempts_itself_is_not_admitted_in_the_same_step() -> None:
    rule = ContinuousBatching(8, 16, kv_blocks=3, prefill_first=True)
    step = rule.schedule([Row(0, 17, 16, 0, 2), Row(1, 40, 16, 0, 1)], [])
    assert (tokens_of(step), step.preempted, step.admitted) == ({0: 1}, (Row(1, 40),), 0)


def test_each_row_pays_the_slots_of_a_small_model() -> None:
    rule = ContinuousBatching(8, 10, slots=1)
    step = rule.schedule([Row(0, 31, 30, K)], [Row(1, 9)])
    assert tokens_of(step) == {0: 4, 1: 4}


def test_a_row_without_its_draft_sits_out() -> None:
    rule = ContinuousBatching(8, 64)
    step = rule.schedule([Row(0, 31, 30, sits_out=True), Row(1, 31, 30)], [])
    assert tokens_of(step) == {1: 1}
    assert step.running[0] == Row(0, 31, 30, sits_out=True)


@pytest.mark.parametrize("first", [False, True])
def test_a_step_looks_at_one_waiting_row_beyond_those_that_it_admits(first: bool) -> None:
    seen = []

    def waiting() -> Iterator[Row]:
        for tag in range(1, 1000):
            seen.append(tag)
            yield Row(tag, 9)

    step = ContinuousBatching(8, 30, prefill_first=first).schedule([Row(0, 40, 20)], waiting())
    assert (step.admitted, seen) == (2, [1, 2, 3])


REQUESTS = st.lists(st.tuples(st.integers(1, 70), st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=8)


@given(
    requests=REQUESTS, seqs=st.integers(1, 5), budget=st.integers(2, 40), blocks=st.integers(0, 20),
    depth=st.integers(0, 4), slots=st.integers(0, 1), lookahead=st.booleans(), first=st.booleans(), data=st.data(),
)  # fmt: skip
def test_work_and_memory_are_conserved(
    requests: list[tuple[int, int, int]], seqs: int, budget: int, blocks: int, depth: int, slots: int,
    lookahead: bool, first: bool, data: st.DataObject,
) -> None:  # fmt: skip
    """Every request that fits ends; no step exceeds a limit; every known token is computed once a time it is lost."""
    rule = ContinuousBatching(seqs, budget, blocks, 8, depth if lookahead else 0, slots, first)
    requests = [each for each in requests if rule.fits(each[0] + each[1] + depth)]
    arrivals = deque(sorted(range(len(requests)), key=lambda tag: requests[tag][2]))
    goals = {tag: prompt + new for tag, (prompt, new, _) in enumerate(requests)}
    running: list[Row] = []
    waiting: list[Row] = []
    computed = dict.fromkeys(goals, 0)
    open_tags = set(goals)
    for number in range(10_000):
        if not open_tags:
            break
        while arrivals and requests[arrivals[0]][2] <= number:
            tag = arrivals.popleft()
            waiting.append(Row(tag, requests[tag][0]))
        step = rule.schedule(running, waiting)
        assert sum(share.tokens + slots for share in step.shares) <= budget
        assert len(step.running) <= seqs
        assert not blocks or sum(row.blocks for row in step.running) <= blocks
        assert step.shares or not (running or waiting)
        shares = {share.tag: share for share in step.shares}
        for row in step.preempted:
            computed[row.tag] = 0
            assert row.tag not in shares
        running = []
        for row in step.running:
            share = shares.get(row.tag)
            if share is not None:
                assert share.computed == computed[row.tag]
                assert row.blocks * 8 >= share.computed + share.tokens
                accepted = data.draw(st.integers(0, share.drafts))
                row = stepped(row, share, accepted, depth)  # noqa: PLW2901
                computed[row.tag] += share.tokens - share.drafts + accepted
                assert row.computed == computed[row.tag]
                if share.samples and row.known >= goals[row.tag]:
                    open_tags.remove(row.tag)
                    continue
            running.append(row)
        waiting = left(step, waiting)
    assert not open_tags
