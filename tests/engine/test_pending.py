"""Drafts that arrive during a verification, seeds of sessions that open again, ratios without logits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specfleet.engine.decoding.grow import Drafts
from specfleet.engine.decoding.sampling import Sampling, distributions
from specfleet.engine.decoding.trees import static_tree
from specfleet.engine.decoding.verify import measure_signals
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.node.build import Streams
from specfleet.engine.node.drafts import said_by
from specfleet.engine.node.pending import PendingDrafts, joined
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.stations.messages import Draft

TOKENS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(TOKENS, TOKENS, st.integers(0, 9), st.data())
def test_later_drafts_stay_only_after_full_acceptance_and_agreement(
    before: list[int], meanwhile: list[int], token: int, data: st.DataObject
) -> None:
    tails = PendingDrafts()
    for drafted in before:
        tails.receive(Draft(3, 0, 1, 9, 1), Content([drafted]))
    assert list(tails.take(3).tokens) == before
    for drafted in meanwhile:
        tails.receive(Draft(3, 0, 1, 9, 1), Content([drafted]))
    accepted = data.draw(st.integers(0, len(before)))
    outcome = tails.resolved(3, len(before), Outcome(accepted), token)
    stands = accepted == len(before) and meanwhile[0] == token
    assert outcome == Outcome(accepted, matches=stands)
    assert list(tails.take(3).tokens) == (meanwhile[1:] if stands else [])


def test_drafts_of_other_sessions_stay() -> None:
    tails = PendingDrafts()
    for tag in (0, 1):
        tails.receive(Draft(tag, 0, 1, 9, 1), Content([tag + 1]))
    tails.forget(0)
    assert tails.take(0) is NOTHING
    assert list(tails.take(1).tokens) == [2]


def test_joined_drafts_keep_their_distributions() -> None:
    """Of several widths, too."""
    drafts = [Content([t], distributions=np.full((1, t), t, dtype=np.float16), rule="rejection") for t in (2, 3, 4)]
    whole = joined(drafts)
    assert whole.rule == "rejection"
    assert whole.distributions is not None
    assert whole.distributions.tolist() == [[2, 2, 0, 0], [3, 3, 3, 0], [4, 4, 4, 4]]


def test_a_node_with_nothing_left_to_draw_is_no_token_of_a_text() -> None:
    assert said_by(Content([3, -1], [0, 1]), [3]) == [1]


def test_a_reopened_session_draws_other_numbers() -> None:
    streams = Streams((), seed=5)
    seeds = [streams.seed_of(2, "drafter", epoch) for epoch in (1, 2, 3)]
    assert len({*seeds, streams.seed_of(2, "target")}) == 4
    assert seeds[0] == streams.seed_of(2, "drafter")


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_frames_keep_the_signals_of_sampled_drafts(temperature: float) -> None:
    torch.manual_seed(0)
    B, n, V = 2, 3, 11
    of_target, of_drafter = torch.randn(B, n + 1, V), torch.randn(B, n, V)
    rows = [Sampling(temperature)] * B
    q = distributions(of_drafter, rows).half()
    tokens, counts = torch.randint(V, (B, n)), [3, 2]
    tree = static_tree((1,) * n, torch.device("cpu"))
    local = measure_signals(Drafts(tree, tokens, counts, counts, q, logits=of_drafter), of_target, rows)
    remote = measure_signals(Drafts(tree, tokens, counts, counts, q), of_target, rows)
    for here, there in zip(local, remote, strict=True):
        for signal, error in (("ratio", 2e-3), ("kld", 1e-3), ("entropy", 1e-3)):
            sent, own = ([getattr(token, signal) for token in tokens] for tokens in (there, here))
            assert sent == pytest.approx(own, rel=error), signal


def test_a_token_too_rare_to_be_sent_counts_as_half_of_the_rarest() -> None:
    of_target, of_drafter = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]), torch.tensor([[[20.0, 0.0]]])
    q, tree = distributions(of_drafter, [Sampling(1.0)]).half(), static_tree((1,), torch.device("cpu"))
    (signals,) = measure_signals(Drafts(tree, torch.tensor([[0]]), [1], [1], q), of_target, [Sampling(1.0)])
    p = torch.softmax(of_target[0, 0].double(), -1)
    assert q[0, 0, 1] == 0
    assert signals[0].kld == pytest.approx(float((p * p.log()).sum() + p[1] * 25 * math.log(2)))


def test_greedy_drafts_have_the_targets_probabilities() -> None:
    logits = torch.log(torch.tensor([[[0.2, 0.8], [0.5, 0.5]]]))
    tree = static_tree((1,), torch.device("cpu"))
    (signals,) = measure_signals(Drafts(tree, torch.tensor([[0]]), [1], [1]), logits, [Sampling(1.0)])
    assert signals[0].ratio == pytest.approx(0.2)


@pytest.mark.parametrize("sent", [True, False])
def test_signals_of_a_tree_are_those_of_its_nodes(sent: bool) -> None:
    p, q = torch.tensor([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1], [0.3, 0.7]]), torch.tensor([[[0.4, 0.6], [1.0, 0.0]]])
    tree, tokens = static_tree((2, 1), torch.device("cpu")), torch.tensor([[0, 1, 0, 0]])
    drafts = Drafts(tree, tokens, [3], [2], q.half() if sent else None, None if sent else q.log())
    (signals,) = measure_signals(drafts, torch.cat([p, p[:1]]).log()[None], [Sampling(1.0)])
    assert [signal.ratio for signal in signals] == pytest.approx([0.5, 1.0, 0.5], rel=1e-3)


def test_a_batch_without_any_draft_has_no_signals() -> None:
    tree = static_tree((), torch.device("cpu"))
    nothing = Drafts(tree, torch.zeros(2, 0).long(), [0, 0], [0, 0])
    assert measure_signals(nothing, torch.randn(2, 1, 5), [Sampling()] * 2) == [[], []]
