"""Follow every branch of a random computation: its exact distribution, from the very code that draws."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

T = TypeVar("T")


class Branches:
    """Chance for one row that follows a script of choices, and notes the scripts that it passes by."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.script = script
        self.made: tuple[int, ...] = ()
        self.probability = 1.0
        self.others: list[tuple[int, ...]] = []

    def accepts(self, probability: torch.Tensor) -> torch.Tensor:
        chance = min(float(probability), 1.0)
        return torch.tensor([self._choose([(True, chance), (False, 1.0 - chance)])])

    def draws(self, weights: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self._drawn(row) for row in weights])

    def spread(self, nodes: int, count: int) -> list["Branches"]:
        return [self] * count

    def _drawn(self, weights: torch.Tensor) -> int:
        if not weights.any():
            return 0  # a case that is not looked at
        return self._choose(list(enumerate((weights / weights.sum()).tolist())))

    def _choose(self, options: list[tuple[T, float]]) -> T:
        possible = [(value, share) for value, share in options if share > 0]
        number = self.script[len(self.made)] if len(self.made) < len(self.script) else 0
        if len(self.made) >= len(self.script):
            self.others += [(*self.made, other) for other in range(1, len(possible))]
        self.made += (number,)
        value, share = possible[number]
        self.probability *= share
        return value


def explore(run: Callable[[Branches], T]) -> Iterator[tuple[float, T]]:
    """Yield (probability, result) of every way that `run` can go."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        chance = Branches(pending.pop())
        result = run(chance)
        pending += chance.others
        yield chance.probability, result
