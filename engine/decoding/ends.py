"""Where a text ends by itself: at an end-of-text token, or with the token that completes a stop string."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ends:
    """What ends a text: the `tokens` by their ids, and `stops`, strings in UTF-8.

    `surfaces[i]`: what token i adds to the text, in UTF-8; needed for `stops` only. Bytes, because a character may lie
    in several tokens.
    """

    tokens: frozenset[int] = frozenset()
    stops: tuple[bytes, ...] = ()
    surfaces: Sequence[bytes] = ()

    def after(self, text: Sequence[int], added: Sequence[int]) -> int:
        """Return with which of the `added` tokens, counted from 1, the `text` before them ends; 0 if it goes on."""
        if not (self.tokens or self.stops):
            return 0
        reach = max((len(stop) for stop in self.stops), default=0)  # a token has at least one byte
        known = list(text[-reach:]) if reach else []
        for number, token in enumerate(added, start=1):
            known.append(token)
            if token in self.tokens or (self.stops and self._completes(known[-reach:])):
                return number
        return 0

    def _completes(self, newest: Sequence[int]) -> bool:
        """Whether a stop string ends within the last of the newest tokens."""
        parts = [self.surfaces[token] if token < len(self.surfaces) else b"" for token in newest]
        text, before = b"".join(parts), sum(map(len, parts[:-1]))
        # What lies wholly before the last token was looked at with an earlier one, or belongs to the prompt.
        return any(text.find(stop, max(0, before - len(stop) + 1)) >= 0 for stop in self.stops)


NEVER = Ends()
