"""Bodies of light processes that only report. Without torch."""

import os

from engine.launch.bodies import LauncherPipe


def reports_much(pipe: LauncherPipe, number: int) -> str:
    """Report so many numbers, after a message."""
    pipe.send(("ready", "ready"))
    pipe.recv()
    for each in range(number):
        pipe.report(each)
    return "all"


def answers_late(pipe: LauncherPipe) -> str:
    """Answer after a message."""
    pipe.recv()
    return "late"


def reports_and_dies(pipe: LauncherPipe) -> None:
    """Report once, and die."""
    pipe.report(1)
    os._exit(3)
