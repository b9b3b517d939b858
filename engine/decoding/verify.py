"""The verifying side of the engine: a target model that applies the lossless rules to streams, each with a tag."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specfleet.engine.decoding.cache import WARM_UP, RowCache
from specfleet.engine.decoding.draft import Rows, Stream
from specfleet.engine.decoding.feed import Nodes, in_rectangle
from specfleet.engine.decoding.graphs import MAX_TOKENS
from specfleet.engine.decoding.greedy import longest_path
from specfleet.engine.decoding.grow import BROKEN, Drafts, check_draft, no_drafts, no_numbers
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.rules import Rule, Walk, decided_at, decisions, normalised
from specfleet.engine.decoding.rules import verify as walk_down
from specfleet.engine.decoding.sampling import Sampling, distributions, uniforms, warmed, widened
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Token

MIN_LOG = math.log(torch.finfo(torch.float64).tiny)  # logarithm of the least probability
MIN_LOG_SENT = -25 * math.log(2)  # half of the least probability above 0 of float16, in which drafts are sent


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one draft: the accepted nodes from the root on, their `tokens`, and after these the target's own.

    - `hidden` (nodes + 1, hidden): the target's states for a draft head at the root and at all nodes of the draft: last
      hidden states, or inputs of its tapped layers.
    - `signals`: of the drafted tokens, if requested.
    """

    path: list[int]
    tokens: list[int]
    hidden: torch.Tensor
    signals: Sequence[Token] = ()

    @property
    def accepted(self) -> int:
        """Number of accepted draft tokens."""
        return len(self.path)

    @property
    def token(self) -> int:
        """The target's own token."""
        return self.tokens[-1]

    @property
    def committed_hidden(self) -> torch.Tensor:
        """The hidden states of committed tokens: (accepted + 1, hidden)."""
        accepted = len(self.path)
        if self.path == list(range(1, accepted + 1)):
            return self.hidden[: accepted + 1]
        return self.hidden.index_select(0, placed([0, *self.path], self.hidden.device))


@dataclass(frozen=True, slots=True)
class Fed:
    """What a verification of B rows feeds.

    - `tokens` (B, n + 1): roots and drafts, as a rectangle. `flat` (N,): those that are fed, `counts` of each row.
    - `nodes`: of trees. `inside` (N,): places of the fed tokens in the rectangle, if it has others.
    """

    tokens: torch.Tensor
    flat: torch.Tensor
    counts: Sequence[int]
    nodes: Nodes | None = None
    inside: torch.Tensor | None = None


Kept = Callable[[Sequence[int]], Sequence[int]]
"""From the accepted draft tokens of each row to the number of them that the row keeps."""


class Target(Rows):
    """A target model with its rule of verification.

    - `rectangular`: whether rows with shorter drafts may be fed as many tokens as the longest. A CPU computes only the
      real tokens, because each costs time; a GPU prefers a repeated shape, and reads the weights anyway. Where its
      attention reads pages, a pass that no graph takes has the real tokens alone.
    - `taps`: layers with the inputs for a draft head; none for the last hidden states.
    """

    def __init__(
        self, model: CausalLM, rule: Rule = "rejection", cache: RowCache | None = None, taps: Sequence[int] = ()
    ) -> None:
        self.model = model
        self.rule = rule
        self.taps = tuple(taps)
        self.cache = model.new_cache() if cache is None else cache
        self.rectangular = model.device.type != "cpu" and not self.cache.shares
        self.streams = {}

    def warm_up(self, tokens: int) -> None:
        """Read a prompt of so many tokens, decode one, and forget both: the first steps of a process load libraries."""
        self.open(WARM_UP, [0] * tokens)
        self.prefill(WARM_UP)
        self.decode([WARM_UP])
        self.release(WARM_UP)

    def feed_part(self, tag: int, tokens: int) -> torch.Tensor:
        """Feed the next tokens of a stream's text, a part of its prompt; return their states for a draft head."""
        known = self.cache.lengths[tag]
        return self.split(
            self.model.prefill(self.cache, tag, self.streams[tag].committed[known : known + tokens], self.taps)
        )[1]

    def forget(self, tag: int, known: int = 0) -> None:
        """Forget a stream's cache; its text has to be fed again, behind the `known` tokens of a prefix cache."""
        self.cache.lengths[tag] = known

    def prefill(self, tag: int) -> Verdict:
        """Feed the rest of a stream's text and commit the token after it. The verdict's hidden states are of this
        rest."""
        text = self.streams[tag].committed[self.cache.lengths[tag] :]
        last, hidden = self.split(self.model.prefill(self.cache, tag, text, self.taps))
        (token,) = self.sample([tag], self.model.logits(last[-1:]))
        return Verdict([], [token], hidden)

    def sample(self, tags: Sequence[int], logits: torch.Tensor) -> list[int]:
        """Commit the token after the text of each row, from its logits (B, V)."""
        nothing, roots = no_drafts(len(tags), self.model.device), logits.new_zeros(len(tags), 1).long()
        tokens = [token for _, _, token in self._walk(tags, nothing, roots, logits[:, None])]
        for tag, token in zip(tags, tokens, strict=True):
            self.streams[tag].committed.append(token)
        return tokens

    def decode(self, tags: Sequence[int]) -> list[Verdict]:
        """Commit one token of each stream by plain decoding; a stream's first one is its prefill."""
        fresh = {
            tag: self.prefill(tag) for tag in tags if self.cache.lengths[tag] + 1 < len(self.streams[tag].committed)
        }
        others = [tag for tag in tags if tag not in fresh]
        decoded = self.verify(others, no_drafts(len(others), self.model.device)) if others else []
        verdicts = dict(zip(others, decoded, strict=True)) | fresh
        return [verdicts[tag] for tag in tags]

    def verify(
        self, tags: Sequence[int], drafts: Drafts, kept: Kept | None = None, signals: bool = False
    ) -> list[Verdict]:
        """Verify the drafts of streams in one forward pass; commit accepted tokens and the target's own.

        - `kept`: for batch rules that drop accepted tokens.
        - `signals`: whether verdicts on chains have them.

        InputError for drafts of another rule, and for logits that are not numbers.
        """
        fed = self.fed_for(tags, drafts)
        states = self.model.feed(self.cache, tags, fed.flat, fed.counts, fed.nodes, self.taps)
        last, hidden = self.split(states)  # (N, hidden) each
        return self.conclude(tags, drafts, fed, self.model.logits(last), hidden, kept, signals)

    def fed_for(self, tags: Sequence[int], drafts: Drafts, beside: bool = False) -> Fed:
        """Return what a verification feeds; InputError for drafts of another rule.

        - `beside`: whether other rows share its pass.
        """
        if drafts.rule not in (None, self.rule):
            raise InputError(
                f"{drafts.drafter} draws for verifiers.rule = {drafts.rule!r}, its target verifies by {self.rule!r}, "
                "which would change what the target says; give both the same rule"
            )
        tree = drafts.tree
        roots = placed([[self.streams[tag].committed[-1]] for tag in tags], self.model.device)
        tokens = torch.cat([roots, drafts.tokens], 1)  # (B, n + 1)
        nodes = None if tree.is_chain else Nodes(0, tree.ancestors, tree.depths)
        # Surplus tokens lie beyond all others of their row, within the capacity for the widest row, and are never kept.
        captured = self.model.graphs is not None and tokens.numel() <= MAX_TOKENS and not beside
        real = not self.rectangular or (self.cache.pages and tree.is_chain and not captured)
        counts = [count + 1 for count in drafts.counts] if real else [tokens.shape[1]] * len(tags)
        flat, inside = tokens.flatten().clamp(0, self.model.vocabulary - 1), None
        if min(counts) < tokens.shape[1]:
            inside = placed(in_rectangle(counts, tokens.shape[1]), flat.device)
            flat = flat[inside]
        return Fed(tokens, flat, counts, nodes, inside)

    def conclude(
        self,
        tags: Sequence[int],
        drafts: Drafts,
        fed: Fed,
        logits: torch.Tensor,
        hidden: torch.Tensor,
        kept: Kept | None = None,
        signals: bool = False,
    ) -> list[Verdict]:
        """Apply the rule to the logits (N, V) of what was fed, and commit; `hidden` (N, ...): states for a draft
        head."""
        tokens, streams = fed.tokens, [self.streams[tag] for tag in tags]
        if fed.inside is not None:  # a rectangle for the rules; values beyond a row's draft are never read
            logits = logits.new_zeros(tokens.numel(), logits.shape[1]).index_copy_(0, fed.inside, logits)
        logits = logits.view(*tokens.shape, -1)
        walks = self._walk(tags, drafts, tokens, logits)
        if kept is not None:
            wanted = kept([len(path) for path, _, _ in walks])
            walks = [cut(*walk, length) for walk, length in zip(walks, wanted, strict=True)]
        measured = measure_signals(drafts, logits, [stream.sampling for stream in streams]) if signals else None
        begins = np.cumsum([0, *fed.counts]).tolist()
        verdicts = []
        for row, (stream, walk) in enumerate(zip(streams, walks, strict=True)):
            path, accepted, token = walk
            states = hidden[begins[row] : begins[row] + drafts.counts[row] + 1]
            signs = measured[row] if measured else ()
            verdicts.append(Verdict(path, [*accepted, token], states, signs))
            stream.committed += verdicts[-1].tokens
        self.cache.keep(tags, [[0, *verdict.path] for verdict in verdicts])
        return verdicts

    def split(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split the result of a pass (N, (taps + 1) x hidden): last hidden states, and those for a draft head."""
        width = states.shape[-1] // (len(self.taps) + 1)
        return states[:, -width:], states[:, :-width] if self.taps else states

    def _walk(
        self, tags: Sequence[int], drafts: Drafts, tokens: torch.Tensor, logits: torch.Tensor
    ) -> list[tuple[list[int], list[int], int]]:
        """Apply the rule; return accepted nodes, their tokens and each row's own token, by one copy to the host."""
        streams, tree = [self.streams[tag] for tag in tags], drafts.tree
        samplings, n = [stream.sampling for stream in streams], tree.nodes
        best, choices = logits.max(-1)  # (B, n + 1): the largest is a number if all are, except for minus infinity
        looked_at = torch.cat([best - best != 0, tokens], 1)
        greedy = all(sampling.temperature == 0 for sampling in samplings)
        if greedy:
            said = [choices, tree.parents.expand(len(tokens), -1)]
        else:
            walk = self._drawn(streams, drafts, distributions(logits, samplings))
            said = [walk.path, walk.token[:, None]]
        walks = []
        for row, copied in enumerate(torch.cat([looked_at, *said], 1).tolist()):
            self._check(tags[row], drafts, row, copied)
            drafted, told = copied[n + 2 : 2 * n + 2], copied[2 * n + 2 :]
            if greedy:
                parents = None if tree.is_chain else told[n + 1 :]
                path, token = longest_path(drafted[: drafts.counts[row]], told[: n + 1], parents)
            else:
                path, token = [node for node in told[:-1] if node > 0], told[-1]
            walks.append((path, [drafted[node - 1] for node in path], token))
        return walks

    def _drawn(self, streams: Sequence[Stream], drafts: Drafts, p: torch.Tensor) -> Walk:
        """Apply the rule to drafts by random decisions; `p` (B, n + 1, V): the target's distributions."""
        tree, drafted, V = drafts.tree, drafts.tokens, p.shape[-1]
        widest = tree.children.shape[-1]
        rows = zip(drafts.depths, drafts.fans or [widest] * len(streams), strict=True)
        taken = [decided_at(self.rule, levels, fan, widest) for levels, fan in rows]
        width = decisions(self.rule, tree.levels, widest)
        chance = uniforms([stream.rng for stream in streams], taken, width, p.device)
        # A drafter with a larger padded embedding may draft tokens outside of the target's vocabulary.
        if drafts.q is None:
            q, drafted = None, drafted.masked_fill(drafted >= V, -1)  # never accepted: p is 0 there
        else:
            q, p = normalised(widened(drafts.q.to(p.dtype), V)), widened(p, drafts.q.shape[-1])
        return walk_down(self.rule, tree, drafted, q, p, chance)

    def _check(self, tag: int, drafts: Drafts, row: int, looked_at: Sequence[int]) -> None:
        """Raise InputError if logits are not numbers. `looked_at`: whether so for the root and each node, then the
        tokens of these."""
        tree, count, length = drafts.tree, drafts.counts[row], len(self.streams[tag].committed)
        tokens = looked_at[tree.nodes + 2 : tree.nodes + 2 + count]
        if BROKEN in tokens:
            check_draft(tokens, tree.parents.expand(row + 1, -1)[row, :count].tolist(), drafts.drafter, tag, length)
        broken = next((node for node in range(count + 1) if looked_at[node]), None)
        if broken is not None:
            depth = int(tree.depths.expand(row + 1, -1)[row, broken])
            raise InputError(no_numbers(f"target {self.model.name}", tag, length + depth))


def cut(path: list[int], tokens: list[int], token: int, length: int) -> tuple[list[int], list[int], int]:
    """Keep `length` of the accepted tokens; the next accepted one then replaces the target's own."""
    return (path, tokens, token) if length == len(path) else (path[:length], tokens[:length], tokens[length])


def measure_signals(drafts: Drafts, logits: torch.Tensor, rows: Sequence[Sampling]) -> list[list[Token]]:
    """Return the signals of each row's draft, from the target's logits (B, n + 1, V) at the root and every node.

    The acceptance probability is min(1, p/q) of the drafted token, which is 0 or 1 at temperature 0. Divergence and
    entropy are those of the distributions at the row's temperature, at 1 for greedy rows, in nats. All are finite: a
    logit of minus infinity counts as the least probability of the number format. One host copy. Between nodes travel no
    logits, but the distributions of sampled drafts, in float16; without these there is only the acceptance probability.
    """
    if not drafts.tree.nodes:
        return [[] for _ in drafts.counts]
    row, above = torch.arange(len(logits), device=logits.device)[:, None], drafts.tree.parents
    of_target = logits[row, above].double()
    if drafts.logits is not None:
        of_drafter = drafts.logits[row, above.clamp(max=drafts.logits.shape[1] - 1)].double()
        of_drafter = widened(of_drafter, of_target.shape[-1], -torch.inf)
        q, log_q, least = distributions(of_drafter, rows), torch.log_softmax(warmed(of_drafter, rows), -1), MIN_LOG
    elif drafts.q is not None:
        q = normalised(drafts.q.double())[row, above.clamp(max=drafts.q.shape[1] - 1)]
        log_q, least = widened(q, of_target.shape[-1]).log(), MIN_LOG_SENT
    else:
        q = None
    numbers = [ratios(drafts, distributions(of_target, rows), q)]
    if q is not None:
        log_p = torch.log_softmax(warmed(widened(of_target, q.shape[-1], -torch.inf), rows), -1)
        numbers += divergences(log_p, log_q, least)
    listed = torch.stack(numbers, -1).tolist()
    return [[Token(*token) for token in row[:count]] for row, count in zip(listed, drafts.counts, strict=True)]


def divergences(log_p: torch.Tensor, log_q: torch.Tensor, least: float) -> list[torch.Tensor]:
    """Return KL(p||q) and the entropy of q, (B, n) each, in nats, from logarithms (B, n, V) of the distributions.

    Tokens outside of one vocabulary have no weight. Their logarithms count as `least`, so that all signals are finite.
    """
    apart = log_p.clamp(min=MIN_LOG) - log_q.clamp(min=least)
    kld, entropy = (log_p.exp() * apart).sum(-1), torch.special.entr(log_q.exp()).sum(-1)
    return [kld.clamp(min=0), entropy.clamp(min=0)]


def ratios(drafts: Drafts, p: torch.Tensor, q: torch.Tensor | None) -> torch.Tensor:
    """Return min(1, p/q) of the drafted tokens (B, n); p and q (B, n, V), q is 1 for greedy drafts without it."""
    V = max(values.shape[-1] for values in (p, q) if values is not None)
    drafted = drafts.tokens.clamp(0, V - 1)[:, :, None]
    ratio = widened(p, V).gather(-1, drafted)
    if q is not None:  # it is 0 where a row's draft has ended
        ratio = (ratio / widened(q, V).gather(-1, drafted).clamp(min=torch.finfo(q.dtype).tiny)).clamp(max=1.0)
    return ratio[:, :, 0]
