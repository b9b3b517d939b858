"""Follow every branch of a random computation: its exact distribution, from the same code that draws."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")
Script = tuple[int, ...]
Text = tuple[int, ...]


class Branches:
    """Decisions of rows that each follow a script of choices; notes the scripts of other branches."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = scripts
        self.made: list[Script] = [()] * len(scripts)
        self.probabilities = [1.0] * len(scripts)
        self.others: list[list[Script]] = [[] for _ in scripts]

    def accepts(self, probability: torch.Tensor) -> torch.Tensor:
        chances = [min(chance, 1.0) for chance in probability.tolist()]
        return torch.tensor([not self._choose(row, (chance, 1.0 - chance)) for row, chance in enumerate(chances)])

    def draws(self, weights: torch.Tensor) -> torch.Tensor:
        nodes = len(weights) // len(self.scripts)  # of every row in order
        # If all weights are 0, no branch is followed.
        shares = (weights / weights.sum(-1, keepdim=True)).nan_to_num().tolist()
        return torch.tensor([self._choose(i // nodes, row) if any(row) else 0 for i, row in enumerate(shares)])

    def spread(self, nodes: int, count: int) -> list["Branches"]:
        return [self] * count

    def _choose(self, row: int, shares: Sequence[float]) -> int:
        """The option of the row's script: its number among those with a share."""
        possible = [option for option, share in enumerate(shares) if share > 0]
        script, made = self.scripts[row], self.made[row]
        number = script[len(made)] if len(made) < len(script) else 0
        if len(made) >= len(script):
            self.others[row] += [(*made, other) for other in range(1, len(possible))]
        self.made[row] = (*made, number)
        self.probabilities[row] *= shares[possible[number]]
        return possible[number]


def explore(run: Callable[[Branches], T]) -> Iterator[tuple[float, T]]:
    """Yield (probability, result) of every branch of `run`, a computation of one row."""
    pending: list[Script] = [()]
    while pending:
        chance = Branches([pending.pop()])
        result = run(chance)
        pending += chance.others[0]
        yield chance.probabilities[0], result


def explore_rows(run: Callable[[Branches, list[int]], Sequence[T]], starts: int = 1) -> Iterator[tuple[int, float, T]]:
    """Yield (start, probability, result) of every branch of a batch's rows from these starts.

    `run` takes the start of every row, and returns every row's result. Many branches are rows of one batch.
    """
    pending: list[tuple[int, Script]] = [(start, ()) for start in range(starts)]
    while pending:
        begun = [start for start, _ in pending]
        chance = Branches([script for _, script in pending])
        results = run(chance, begun)
        yield from zip(begun, chance.probabilities, results, strict=True)
        pending = [(start, script) for start, others in zip(begun, chance.others, strict=True) for script in others]


def masses_of(branches: Iterable[tuple[float, Text]]) -> dict[Text, float]:
    """The probability of each text over all branches."""
    masses: dict[Text, float] = {}
    for probability, text in branches:
        masses[text] = masses.get(text, 0.0) + probability
    return masses
