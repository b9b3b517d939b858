"""Signals are deferred during a section, and then raised."""

import os
import signal
import threading

import pytest

from specfleet.fleet.interrupts import ENDING, Interrupted, deferred


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_comes_after_what_must_not_be_torn(number: int) -> None:
    done: list[str] = []

    def interrupt(number: int, _frame: object) -> None:
        raise Interrupted(number)

    before = signal.signal(number, interrupt)
    other = threading.Thread(target=lambda: os.kill(os.getpid(), number))  # any thread may receive it
    try:
        with pytest.raises(Interrupted) as raised, deferred():  # noqa: PT012
            other.start()
            other.join()
            done.append("whole")
        assert done == ["whole"]
        assert raised.value.status == 128 + number
        assert signal.getsignal(number) is interrupt
    finally:
        signal.signal(number, before)


def test_interruption_line_names_the_signal_and_kept_work() -> None:
    assert Interrupted(signal.SIGINT).line() == "interrupted; nothing was written"
    assert Interrupted(signal.SIGTERM, "kept: 2 files").line() == "ended by SIGTERM; kept: 2 files"
