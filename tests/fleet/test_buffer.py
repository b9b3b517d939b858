"""The buffer against a plain list, and random numbers in blocks against single draws."""

from itertools import chain, islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.acceptance.sources import LARGEST, SMALLEST, uniform_blocks
from specfleet.fleet.policies.order import Work
from specfleet.fleet.stations.buffer import Buffer, Tasks

tags = st.integers(0, 4)
changes = st.one_of(
    st.tuples(st.just("append"), tags), st.tuples(st.just("take"), st.integers(0, 9)), st.tuples(st.just("drop"), tags)
)


@given(st.lists(changes, max_size=40))
def test_buffer_is_a_list_of_work_by_session(asked: list[tuple[str, int]]) -> None:
    buffer, plain = Buffer(), list[Work]()
    for change, number in asked:
        if change == "append":
            work = Work("draft", number, priority=len(plain))
            buffer.append(work)
            plain.append(work)
        elif change == "take" and plain:
            assert buffer.take([number % len(plain)]) == [plain.pop(number % len(plain))]
        elif change == "drop":
            buffer.drop(number)
            plain = [work for work in plain if work.tag != number]
        assert list(buffer) == plain
        assert [buffer.holds(tag) for tag in range(5)] == [any(work.tag == tag for work in plain) for tag in range(5)]


@given(st.lists(tags, max_size=40))
def test_tasks_are_a_list_of_one_work_by_session(asked: list[int]) -> None:
    tasks, plain = Tasks(), list[Work]()
    for number in asked:
        held = tasks.holds(number)
        if held:
            tasks.drop(number)
            plain = [work for work in plain if work.tag != number]
        else:
            plain.append(Work("verify", number))
            tasks.append(plain[-1])
        assert (list(tasks), len(tasks), tasks.kind(number)) == (plain, len(plain), None if held else "verify")
        assert sorted(range(5), key=tasks.place)[: len(plain)] == [work.tag for work in plain]


def test_growing_blocks_contain_the_generators_numbers() -> None:
    sizes = [len(block) for block in islice(uniform_blocks(np.random.default_rng(1)), 10)]
    assert sizes == [min(SMALLEST * 2**number, LARGEST) for number in range(10)]
    numbers = list(islice(chain.from_iterable(uniform_blocks(np.random.default_rng(1))), 10_000))
    assert numbers == np.random.default_rng(1).random(10_000).tolist()
