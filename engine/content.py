"""What travels beside a message, and the interface of the hands that produce and consume it. Without torch."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from specfleet.messages import Message, Outcome, StationEvent
from specfleet.station import Step


class Content(msgspec.Struct, frozen=True):
    """What travels beside a message: token ids, and when sampling float16 draft distributions (tokens, vocabulary)."""

    tokens: Sequence[int] = ()
    distributions: np.ndarray | None = None


NOTHING = Content()


class Executor(Protocol):
    """The hands of one station."""

    def receive(self, event: StationEvent, content: Content) -> None:
        """Take the content of an event that the station accepted."""

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Run a step; return one outcome a member."""

    def content_of(self, message: Message) -> Content:
        """Return the content that belongs to a message of the station."""

    def release(self, tag: int) -> None:
        """Forget a finished request of `tag`."""
