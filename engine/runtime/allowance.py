"""How much of something may happen: so many at once, and so many a second for ever."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Allowance:
    """`left` may be spent at once; it grows by `per_s` a second up to `most`. `time_s`: of the last use."""

    most: float
    per_s: float
    left: float
    time_s: float

    def spend(self, now_s: float) -> bool:
        """Spend one; False if none is left."""
        self.left = min(self.most, self.left + max(now_s - self.time_s, 0.0) * self.per_s)
        self.time_s = now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


def full(most: float, per_s: float, now_s: float) -> Allowance:
    """Return an allowance of which nothing is spent."""
    return Allowance(most, per_s, most, now_s)


class Allowances(Generic[Name]):
    """An allowance for each of some names; of `names` at most, the oldest of which is forgotten, and begins anew."""

    def __init__(self, most: float, per_s: float, names: int = 1 << 20) -> None:
        self.most, self.per_s, self.names = most, per_s, names
        self.by_name: dict[Name, Allowance] = {}

    def of(self, name: Name, now_s: float) -> Allowance:
        """Return the allowance of a name."""
        if name not in self.by_name:
            if len(self.by_name) >= self.names:
                del self.by_name[next(iter(self.by_name))]
            self.by_name[name] = full(self.most, self.per_s, now_s)
        return self.by_name[name]

    def forget(self, name: Name) -> None:
        """Forget a name."""
        self.by_name.pop(name, None)
