"""What a step yields for one session: what policies learn from, acceptance models draw and messages report."""

import msgspec


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What one member got out of a step.

    `accepted`: draft tokens that passed verification. `matches`: all passed, and the target's own token equals the next
    one of the tail, which therefore stands (AMUSD). `drafted`: how many tokens a draft has that a stop rule cut short;
    negative: as many as planned. Signals of the drafted tokens, means unless said otherwise, 0 where unknown: `ratio`
    min(1, p/q), `kld` KL(p||q), `kld_peak` the largest of them.
    """

    accepted: int = 0
    matches: bool = False
    drafted: int = -1
    ratio: float = 0.0
    kld: float = 0.0
    kld_peak: float = 0.0
