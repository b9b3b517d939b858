"""The figure of a reproduction: rows of every kind are drawn, and named in its key."""

from typing import get_args

import pandas as pd

from experiments.reproduce.rows import Kind
from figures.reproduction import draw


def test_rows_of_every_kind_are_drawn_and_named() -> None:
    kinds = get_args(Kind)
    nothing = float("nan")
    table = pd.DataFrame(
        {
            "quantity": "speed",
            "case": kinds,
            "kind": kinds,
            "paper": [1.0, nothing] + [1.0] * (len(kinds) - 2),
            "ours": 2.0,
        }
    )
    (legend,) = draw(table).legends
    assert {text.get_text() for text in legend.get_texts()} == {"paper", *(f"ours, {kind}" for kind in kinds)}
