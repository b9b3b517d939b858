"""What travels beside a message, and the interface of the executors that produce and consume it. Without torch."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float16).max)

DRAWN = ("rejection", "without-replacement")  # rules that draw; a byte on the wire says which


class Content(msgspec.Struct, frozen=True):
    """What travels beside a message.

    `tokens`: of a draft, of an opening prefix, or the target's own. `nodes`: of a draft, the parents of its nodes; of
    an outcome, the accepted ones; None for a chain. `distributions`: when sampling, what the children of nodes 0, 1,
    ... were drawn from, as float16 weights (inner nodes, vocabulary). `hidden`: the target's hidden states of what was
    committed, float16 (tokens, numbers), for drafters that read them. `rule`: which one of DRAWN a draft was drawn
    for; empty where nothing was drawn.
    """

    tokens: Sequence[int] = ()
    nodes: Sequence[int] | None = None
    distributions: np.ndarray | None = None
    hidden: np.ndarray | None = None
    rule: str = ""


NOTHING = Content()


def path_sent(path: Sequence[int]) -> Sequence[int] | None:
    """Accepted nodes as they are sent: None where they are the first ones in order, which the new length shows."""
    return None if list(path) == list(range(1, len(path) + 1)) else path


def states_sent(states: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return hidden states as they are sent, in float16: what a bfloat16 model has beyond its range is cut to it.

    A head that reads them drafts a little worse; infinite ones no drafter would take.
    """
    return np.clip(states, -LARGEST, LARGEST).astype(np.float16)
