"""Signals of drafted tokens on the engine: tests that end drafts, and a record of whole texts."""

from collections.abc import Callable

from specfleet.engine.decoding.verify import Verdict
from specfleet.fleet.acceptance.token import Token
from specfleet.fleet.stations.messages import Join

Watch = Callable[[int, float], bool]
"""Whether the draft of a tag stops after a token; its distribution has that entropy, in nats."""


def note_signals(recorded: dict[int, list[Token]], join: Join, committed: int, verdict: Verdict) -> None:
    """Append a verdict's signals to those of its request, by their place in the generated text.

    A place without a draft, of a first token or a bonus token, counts as the one beside it.

    - `recorded`: signals by request, up to the first rejection.
    - `committed`: length of the text after the verdict.
    """
    if not verdict.signals:
        return
    earlier = recorded.setdefault(join.request, [])
    signals = list(verdict.signals[: len(verdict.path) + 1])
    begin = committed - join.prompt_tokens - len(verdict.path) - 1
    earlier += [earlier[-1] if earlier else signals[0]] * (begin - len(earlier)) + signals
