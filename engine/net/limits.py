"""Limits of a fleet's messages: the size of a frame, the content of requests and drafts, and a peer's sessions.

Each check returns the reason why a message is not admissible, or nothing. It compares lengths, token ids, paths and
shapes with the scenario and with earlier messages of the session, so an admissible message can be fed to a model.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from specfleet.engine.net.content import DRAWN, NOTHING, Content
from specfleet.engine.net.frames import HEADER, MAX_ENVELOPE_BYTES
from specfleet.fleet.policies.shapes import CHAIN, Shape
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal
from specfleet.fleet.stations.payload import HIDDEN_BYTES, PROBABILITY_BYTES, TOKEN_BYTES

MAX_WIDER = 2  # a drafter's vocabulary over its target's: embeddings are padded differently
UNKNOWN = 1 << 31  # vocabulary of an unknown model: any token id that a frame can hold

REPEATED = "repeated"  # why a message is dropped that only repeats another


class MessageLimits(msgspec.Struct, frozen=True):
    """Limits of a fleet's messages.

    - `vocabulary`: token ids are below it.
    - `state_numbers`: of a token's hidden states in requests; 0 for none.
    - `sampled`: whether drafts have distributions. `rule`: of their verification.
    - `positions`: learned positions of the models; 0 for no limit.
    - `outruns`: whether a text may go on before its draft has arrived.
    """

    requests: int
    longest_text: int
    longest_draft: int
    shape: Shape = CHAIN
    vocabulary: int = UNKNOWN
    state_numbers: int = 0
    in_turn: bool = True
    sampled: bool = False
    rule: str = "rejection"
    positions: int = 0
    outruns: bool = False


class SessionState(msgspec.Struct):
    """An open session: its request, newest epoch and base.

    `waits`: whether the newest request has no answer yet. `nodes`, `parents`: of the last draft.
    """

    request: int
    epoch: int
    base: int
    waits: bool = True
    nodes: int = 0
    parents: Sequence[int] | None = None


def bounds_of(fleet: Fleet, vocabulary: int = 0, state_numbers: int = 0) -> MessageLimits:
    """Return the limits of a fleet's messages, as far as this node knows them."""
    drafters, depth = fleet.drafters, fleet.room.longest_draft
    return MessageLimits(
        requests=max(fleet.workload.requests, 1),
        longest_text=fleet.room.longest_row - fleet.room.overshoot,
        longest_draft=depth,
        shape=drafters.shape,
        vocabulary=vocabulary or UNKNOWN,
        state_numbers=state_numbers,
        in_turn=fleet.in_turn,
        sampled=bool(fleet.workload.temperature)
        and fleet.verifiers.rule in DRAWN
        and not drafters.finds
        and drafters.shape.kind != "dynamic",
        rule=fleet.verifiers.rule,
        positions=drafters.positions,
        outruns=fleet.verifiers.outruns_drafts,
    )


def max_bytes(fleet: Fleet, vocabulary: int = 0, state_numbers: int = 0) -> int:
    """Return the bytes of the largest frame that a peer sends: an opening request, or a draft.

    - `vocabulary`: of the distributions of drafts; 0 for that of the profile.
    - `state_numbers`: of a token's hidden states in requests; 0 for none.
    """
    nodes = fleet.drafters.shape.nodes(fleet.room.longest_draft)
    request = (TOKEN_BYTES + HIDDEN_BYTES * state_numbers) * fleet.room.longest_row + TOKEN_BYTES * nodes
    drawn = PROBABILITY_BYTES * (vocabulary or fleet.vocabulary) * (nodes + 1) if fleet.workload.temperature > 0 else 0
    return HEADER.size + MAX_ENVELOPE_BYTES + max(request, 2 * TOKEN_BYTES * nodes + drawn)


def request_refused(
    message: DraftRequest, content: Content, session: SessionState | None, bounds: MessageLimits
) -> str:
    """Return why a request for a draft is not admissible; empty if it is.

    `session`: of the same request; None if it is not open, or if the message opens it.
    """
    known = 0 if session is None else session.base
    count, nodes = len(content.tokens), content.nodes
    path = message.base - known - count  # accepted nodes of the last draft
    most = 1 if bounds.in_turn and not bounds.outruns else message.base  # tokens, if a target waits for each draft
    checks = (
        (message.request < bounds.requests, "request beyond the workload"),
        (message.base <= bounds.longest_text, "base beyond the longest text"),
        (message.base >= (2 if message.opening else 1), "base without a prompt and the first token"),
        (-1 <= message.tokens <= bounds.longest_draft, "grant beyond the longest draft"),
        (bounds.in_turn or 0 <= message.tokens <= bounds.longest_text - message.base, "grant beyond the longest text"),
        (message.opening or session is not None, "session that is not open"),
        (session is None or not (session.waits and bounds.in_turn), "request before its answer"),
        (count == message.base if message.opening else 1 <= count <= most, "number of tokens"),
        (_are_tokens(content.tokens, bounds), "token beyond the vocabulary"),
        (not content.rule and content.distributions is None, "distributions in a request"),
        (session is None or (known < message.base and path <= session.nodes), "more accepted than drafted"),
        (nodes is None or (session is not None and _is_path(nodes, path, session)), "path"),
        (_are_states(content.hidden, message.base - max(known, 1), bounds), "hidden states"),
    )
    return next((what for holds, what in checks if not holds), "")


def draft_refused(message: Draft, content: Content, bounds: MessageLimits) -> str:
    """Return why a draft is not admissible; empty if it is."""
    count, nodes, drawn = len(content.tokens), content.nodes, content.distributions
    inner = count if nodes is None else max(nodes, default=-1) + 1
    levels = min(message.tokens, bounds.longest_draft)  # a deeper tree may be too large to be counted
    least = -1 if content.rule == "without-replacement" else 0  # -1: a node with nothing left to draw
    checks = (
        (0 <= message.tokens <= bounds.longest_draft, "longer than any draft"),
        (not bounds.positions or message.base + message.tokens <= bounds.positions, "beyond the learned positions"),
        (count <= (levels if nodes is None else bounds.shape.nodes(levels)), "number of tokens"),
        (_are_tokens(content.tokens, bounds, least), "token beyond the vocabulary"),
        (nodes is None or bounds.shape.kind != "chain", "nodes of a tree in a chain"),
        (nodes is None or (len(nodes) == count and _are_parents(nodes, message.tokens)), "nodes of a tree"),
        (content.hidden is None, "hidden states in a draft"),
        ((drawn is None) == (not content.rule), "distributions without a rule, or a rule without them"),
        (content.rule in ("", bounds.rule), "rule of another verification"),
        (drawn is None or bounds.sampled, "distributions of a greedy draft"),
        (drawn is not None or not count or not bounds.sampled or bounds.vocabulary == UNKNOWN, "no distributions"),
        (drawn is None or (drawn.shape[0] == inner and _are_weights(drawn, content.tokens, bounds)), "distributions"),
    )
    return next((what for holds, what in checks if not holds), "")


class Sessions:
    """The open sessions of one peer, by tag."""

    def __init__(self, bounds: MessageLimits) -> None:
        self.bounds = bounds
        self.open: dict[int, SessionState] = {}
        self.newest: dict[int, tuple[int, int]] = {}  # request and epoch of the last opening

    def judge(self, message: DraftRequest | Leave, content: Content) -> tuple[list[Leave], str]:
        """Return the Leave that the station gets before a message, and why it is dropped instead; empty if it is not.

        A request that opens a session while one is open implies that the earlier one has left.
        """
        session = self.open.get(message.tag)
        if isinstance(message, Leave):
            if content is not NOTHING:
                return [], "content beside a Leave"
            if session is None or session.request != message.request or 0 < message.epoch < session.epoch:
                return [], REPEATED
            del self.open[message.tag]
            return [], ""
        if message.opening:
            is_new = (message.request, message.epoch) > self.newest.get(message.tag, (-1, 0))
        else:
            is_new = session is not None and session.request == message.request and message.epoch > session.epoch
        if not is_new:
            return [], REPEATED
        why = request_refused(message, content, None if message.opening else session, self.bounds)
        if why:
            return [], why
        before = [] if session is None or not message.opening else [Leave(message.tag, session.request, session.epoch)]
        if message.opening:
            self.newest[message.tag] = message.request, message.epoch
        self.open[message.tag] = SessionState(message.request, message.epoch, message.base)
        return before, ""

    def sent(self, message: Message, content: Content) -> None:
        """Note an answer to the peer."""
        session = self.open.get(message.tag)
        if session is None or session.request != message.request:
            return
        if isinstance(message, Refusal):
            del self.open[message.tag]
        elif message.epoch == session.epoch and (session.waits or not self.bounds.in_turn):  # no repeated draft
            session.waits, session.nodes, session.parents = False, session.nodes + len(content.tokens), content.nodes

    def leaves(self) -> list[Leave]:
        """Return the Leave of every open session."""
        return [Leave(tag, session.request, session.epoch) for tag, session in self.open.items()]


def _are_tokens(tokens: Sequence[int], bounds: MessageLimits, least: int = 0) -> bool:
    return not tokens or (min(tokens) >= least and max(tokens) < bounds.vocabulary)


def _is_path(nodes: Sequence[int], length: int, session: SessionState) -> bool:
    """Whether accepted nodes go down the last draft's tree, from a child of its root."""
    if len(nodes) != length or not all(1 <= node <= session.nodes for node in nodes):
        return False
    above = [0, *nodes][:-1]
    parents = range(session.nodes) if session.parents is None else session.parents
    return all(parents[node - 1] == parent for node, parent in zip(nodes, above, strict=True))


def _are_parents(nodes: Sequence[int], levels: int) -> bool:
    """Whether each node's parent stands before it, and none is deeper than `levels`."""
    depths = [0]
    for place, parent in enumerate(nodes, 1):
        if not 0 <= parent < place:
            return False
        depths.append(depths[parent] + 1)
    return max(depths) <= levels


def _are_states(hidden: np.ndarray | None, tokens: int, bounds: MessageLimits) -> bool:
    if not bounds.state_numbers:
        return hidden is None
    return hidden is not None and hidden.shape == (tokens, bounds.state_numbers) and bool(np.isfinite(hidden).all())


def _are_weights(drawn: np.ndarray, tokens: Sequence[int], bounds: MessageLimits) -> bool:
    """Whether these are distributions of the tokens: wide enough, not negative, and none of them empty."""
    wide = max(tokens, default=0) < drawn.shape[1] <= MAX_WIDER * bounds.vocabulary
    return wide and bool(np.isfinite(drawn).all() and (drawn >= 0).all() and (drawn.max(axis=1) > 0).all())
