"""Content beside a message, and the interface of the executors that produce and consume it. Without torch."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float16).max)

DRAWN = ("rejection", "without-replacement")  # rules with random draws; a byte on the wire gives the rule


class Content(msgspec.Struct, frozen=True):
    """Content beside a message.

    - `tokens`: of a draft, of an opening prefix, or the target's own.
    - `nodes`: of a draft, the parents of its nodes; of an outcome, the accepted ones; None for a chain.
    - `distributions`: with sampling, the float16 weights (inner nodes, vocabulary) from which the children of nodes 0,
      1, ... were drawn.
    - `hidden`: float16 hidden states of the target (tokens, numbers) for committed tokens, if the drafter reads them.
    - `rule`: one of DRAWN, if the draft is sampled; else empty.
    """

    tokens: Sequence[int] = ()
    nodes: Sequence[int] | None = None
    distributions: np.ndarray | None = None
    hidden: np.ndarray | None = None
    rule: str = ""


NOTHING = Content()


def path_sent(path: Sequence[int]) -> Sequence[int] | None:
    """Return accepted nodes as they are sent: None for the first ones in order, which the new length implies."""
    return None if list(path) == list(range(1, len(path) + 1)) else path


def states_sent(states: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return hidden states as they are sent, in float16; values of a bfloat16 model are clipped to its range.

    Clipped states lower the acceptance a little. Infinite ones would break every drafter.
    """
    return np.clip(states, -LARGEST, LARGEST).astype(np.float16)


def padded(rows: np.ndarray, inner: int, width: int) -> np.ndarray:
    """Return distributions (inner nodes, V) with zeros up to a shape."""
    return np.pad(rows, ((0, inner - len(rows)), (0, width - rows.shape[1])))
