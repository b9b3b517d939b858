"""One decoding stream as a value: its committed tokens, its drafted tail, and its epoch.

Both ends of a stream keep such a value. The verifier's is authoritative; the drafter's follows by messages. An epoch
ends when a verification outcome invalidates earlier drafts, so (epoch, base) decides whether a message is valid.
"""

import msgspec

ERA = 1 << 24  # epochs from one opening of a target to its next one: more than any request has rounds
INCARNATION = 1 << 48  # epochs from one start of a target's process to its next one


class Session(msgspec.Struct, frozen=True, gc=False):
    """State of the stream `tag` in its `request`-th request.

    - `base`: committed tokens, prompt included.
    - `tail`: draft tokens beyond it that are not verified yet.
    - `goal`: length at which the request is complete (0 at the drafter).

    `asked` and `behind` are the drafter's, `goal` and what follows `behind` are the target's.
    """

    tag: int
    request: int
    epoch: int
    base: int
    goal: int = 0
    tail: int = 0
    priority: int = 0
    alone: bool = False  # decodes without a drafter: none exists, it refused, or it does not answer
    asked: int = -1  # depth granted by the verifier; negative: the drafter decides
    behind: int = 0  # own draft tokens that the drafter has yet to feed: after full acceptance, the last one
    requested: int = -1  # epoch of the request that no draft has answered; negative: there is none
    granted: int | None = None  # length of a next draft that is not requested; negative: the drafter decides
    passed: int = 0  # tokens by which the text is ahead of the draft on its way

    @property
    def finished(self) -> bool:
        """Whether the request is complete."""
        return self.base >= self.goal

    @property
    def has_asked(self) -> bool:
        """Whether it has asked for a draft since it began: it has ended its first prefill."""
        return self.epoch % ERA != 0


def extend(session: Session, epoch: int, base: int, tokens: int) -> Session | str:
    """Append `tokens` drafted at (epoch, base) to the tail; return the new session, or the reason of a mismatch."""
    if epoch != session.epoch:
        return f"epoch {epoch} is not the current epoch {session.epoch}"
    if base != session.base + session.tail:
        return f"draft starts at {base}, the tail ends at {session.base + session.tail}"
    return msgspec.structs.replace(session, tail=session.tail + tokens, requested=-1)


def commit(session: Session, verified: int, accepted: int, matches: bool = False) -> Session:
    """Commit the outcome of verifying the first `verified` tail tokens: the accepted ones and the target's own.

    The target adds one token a round: the correction after a mismatch, the bonus token after full acceptance. Unless
    the drafter went on and guessed that token too (`matches`, AMUSD), the rest of the tail is invalid and a new epoch
    begins. Commits stop at the goal.
    """
    if not 0 <= accepted <= verified <= session.tail:
        raise ValueError(
            f"session {session.tag}: accepted {accepted} of {verified} verified tokens, tail {session.tail}"
        )
    base = min(session.base + accepted + 1, session.goal)
    if matches and accepted == verified < session.tail:
        return msgspec.structs.replace(session, base=base, tail=session.tail - verified - 1, passed=0)
    return msgspec.structs.replace(session, base=base, epoch=session.epoch + 1, tail=0, passed=0)


def decode_alone(session: Session, epoch: int) -> Session:
    """Return the session without its drafter, from which nothing is expected any more."""
    return msgspec.structs.replace(session, alone=True, epoch=epoch, requested=-1, granted=None, passed=0)


def advance(session: Session, epoch: int, base: int, asked: int = -1) -> Session | str:
    """Follow the verifier to (epoch, base), as the drafter does; return the new session, or why the message is stale.

    - `asked`: the depth in the message.
    """
    if epoch <= session.epoch:
        return f"epoch {epoch} is not after {session.epoch}"
    if base <= session.base:
        return f"base {base} is not beyond {session.base}"
    behind = int(0 < session.tail == base - session.base - 1)
    return msgspec.structs.replace(session, epoch=epoch, base=base, tail=0, asked=asked, behind=behind)


def new_era(epoch: int) -> int:
    """Return the first epoch of the era after that of `epoch`: all earlier messages are stale."""
    return (epoch // ERA + 1) * ERA


def era_of(epoch: int) -> int:
    """Return the first epoch of the era of `epoch`: in one era a target opens its session once."""
    return epoch // ERA * ERA
