"""The names nearest to one that is not known, for errors."""

from collections.abc import Iterable
from difflib import SequenceMatcher

SHOWN = 3  # names in an error; a command lists all


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return the allowed names most like an unknown one, best first: "nearest: a, b, c"; all of a few in their order.

    - `name`: what a user typed; only its first 100 characters are compared, without case.
    """
    names = list(dict.fromkeys(allowed))
    if len(names) <= SHOWN:
        return f"allowed: {', '.join(names) or 'none'}"
    typed = name[:100].lower()
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(typed)
    likeness = {}
    for known in names:
        matcher.set_seq1(known.lower())
        likeness[known] = matcher.ratio()
    return f"nearest: {', '.join(sorted(names, key=lambda known: -likeness[known])[:SHOWN])}"
