"""Adaptive verification: which drafted tokens of a batch are verified."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.policies.adaptive import EDGES_NATS, Adaptive, Tallies, convex
from specfleet.fleet.policies.goodput import RoundCosts
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.run import simulate

DEPTH = 3
CLASSES = len(EDGES_NATS) + 1
SIGNALS = {"model": "synthetic-signals", "acceptance": 0.6, "coupling": 0.9, "gap": 0.3}


def test_steps_without_times_verify_everything() -> None:
    free = RoundCosts((1, 8), ((0.0,) * 4,) * 2, ((0.0,) * 4,) * 2)
    rule = Adaptive(DEPTH, costs=free)
    assert rule.verified([rule.start()] * 3, [3, 1, 2], 4) == [3, 1, 2]


@dataclass
class Batch:
    """Drafts in one step, what is known of them, and the time of the target's step by mean tokens a row."""

    states: list[Tallies]
    drafted: list[int]
    others: int
    verify_s: tuple[float, ...]

    @property
    def rule(self) -> Adaptive:
        return Adaptive(DEPTH, "entropy", trials=5.0, costs=RoundCosts((1,), ((0.5,) * 4,), (self.verify_s,)))

    @property
    def rows(self) -> int:
        return len(self.states) + self.others

    def lengths(self) -> list[int]:
        return self.rule.verified(self.states, self.drafted, self.rows)

    def tokens_per_s(self, lengths: tuple[int, ...], verify_s: np.ndarray) -> float:
        survival = self.rule.survival(self.states, self.drafted)
        expected = self.rows + sum(survival[row, :length].sum() for row, length in enumerate(lengths))
        return float(expected / (0.5 + np.interp(sum(lengths) / self.rows, np.arange(DEPTH + 1), verify_s)))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    states = []
    for _ in range(draw(st.integers(1, 3))):
        counts = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=CLASSES, max_size=CLASSES))
        drawn = tuple(draw(st.lists(st.integers(0, CLASSES - 1), min_size=DEPTH, max_size=DEPTH)))
        states.append(Tallies(tuple(map(min, counts)), tuple(map(max, counts)), drawn))
    drafted = [draw(st.integers(0, DEPTH)) for _ in states]
    times = draw(st.lists(st.floats(0.001, 1.0), min_size=DEPTH + 1, max_size=DEPTH + 1))
    return Batch(states, drafted, draw(st.integers(0, 2)), tuple(np.cumsum(times).tolist()))


@given(batches())
def test_no_other_prefixes_commit_more_tokens_a_second(batch: Batch) -> None:
    """Brute force over all prefixes of all drafts, with the convex hull of the times."""
    hull = convex(np.array(batch.verify_s))
    best = max(batch.tokens_per_s(lengths, hull) for lengths in product(*(range(n + 1) for n in batch.drafted)))
    assert batch.tokens_per_s(tuple(batch.lengths()), hull) == pytest.approx(best)


@given(batches(), st.data())
def test_later_tokens_do_not_decide_on_earlier_ones(batch: Batch, data: st.DataObject) -> None:
    """Else the tokens that are verified would be chosen by their values, and sampled text would change."""
    place = data.draw(st.integers(0, DEPTH - 1))
    state = batch.states[0]
    later = data.draw(st.lists(st.integers(0, CLASSES - 1), min_size=DEPTH, max_size=DEPTH))
    before = batch.lengths()[0]
    batch.states[0] = msgspec.structs.replace(state, drawn=(*state.drawn[: place + 1], *later[place + 1 :]))
    assert (batch.lengths()[0] > place) == (before > place)


@given(st.lists(st.floats(0, 9), min_size=1, max_size=7))
def test_the_hull_is_convex_and_above_no_time(times: list[float]) -> None:
    hull = convex(np.array(times))
    assert (hull <= np.array(times) + 1e-9).all()
    assert (np.diff(hull, 2) >= -1e-9).all()
    assert {hull[0], hull[-1]} == {times[0], times[-1]}


def test_estimates_are_by_position_or_by_entropy() -> None:
    by_position, by_entropy = Adaptive(2, "position", 0.5, 1.0), Adaptive(2, "entropy", 0.5, 1.0)
    state = by_position.learn(by_position.drew(by_position.start(), ()), 2, Outcome(1))
    assert (state.accepted, state.compared) == ((1, 0), (1, 1))
    first, second = (1.5 / 2 + 1) / 2, (0.5 / 2 + 0) / 2
    assert by_position.survival([state], [2])[0] == pytest.approx([first, first * second])
    sure, unsure = EDGES_NATS[0] / 2, EDGES_NATS[-1] * 2
    state = by_entropy.learn(by_entropy.drew(by_entropy.start(), (sure, unsure)), 2, Outcome(1))
    new = by_entropy.drew(by_entropy.start(), (unsure, sure))
    assert by_entropy.survival([state, new], [2, 2])[1] == pytest.approx([0.25, 0.25 * 0.75])


def beside(rule: dict[str, Any], acceptance: dict[str, Any] = SIGNALS, **tables: Any) -> Any:
    """A target whose steps grow steeply with their tokens, and whose drafts are cheap."""
    step = {"base_s": 0.004, "per_token_s": 0.001, "per_row_token_s": 0.001}
    laws: dict[str, Any] = dict.fromkeys(("decode", "verify_prefill", "verify"), step)
    laws |= {kind: {"base_s": 0.0005} for kind in ("draft", "draft_prefill")}
    content: dict[str, Any] = {
        "profile": {"name": "stated"} | laws,
        "acceptance": acceptance,
        "drafters": {"place": "target"},
        "verifiers": {"allocate": rule, "max_num_seqs": 8},
        "workload": {"requests": 16, "streams": 8, "prompt_tokens": 20, "new_tokens": 60},
    }
    return make_scenario({key: content.get(key, {}) | tables.get(key, {}) for key in {**content, **tables}})


def verified(run: Any) -> np.ndarray:
    """Lengths and accepted tokens of verifications."""
    rows = run.frame().query("event == 'done' and kind == 'verify'")
    return rows[["tokens", "accepted"]].to_numpy()


@pytest.mark.parametrize("by", ["position", "entropy"])
def test_a_run_verifies_less_than_it_drafts_and_replays(by: str) -> None:
    run = simulate(beside({"policy": "adaptive", "depth": 6, "by": by}))
    assert replay(run) == []
    drafted = run.frame().query("event == 'done' and kind == 'draft'").tokens
    assert drafted.max() == 6
    assert 0 < verified(run)[:, 0].mean() < 0.7 * drafted.mean()
    assert (drafted > 0).sum() == len(verified(run))  # what is not verified is lost: each verification has a new draft
    assert not run.frame().matches.any()


def test_entropies_choose_better_than_positions() -> None:
    """Of tokens that are verified, more are accepted."""
    shares = []
    for by in ("position", "entropy"):
        tokens, accepted = verified(simulate(beside({"policy": "adaptive", "depth": 6, "by": by}))).sum(0)
        shares.append(accepted / tokens)
    assert shares[1] > 1.1 * shares[0]


def test_drafts_from_elsewhere_are_chosen_by_position() -> None:
    rule, law = {"policy": "adaptive", "depth": 6}, {"model": "geometric", "beta": 0.6}
    run = simulate(beside(rule, law, drafters={"place": "own"}, link={"latency_s": 0.001}))
    assert replay(run) == []
    tokens = run.frame().query("event == 'draft'").tokens
    assert 0 < verified(run)[:, 0].mean() < tokens.mean() == 6


def test_free_tokens_are_all_verified() -> None:
    flat = {"base_s": 0.01}
    laws = dict.fromkeys(("decode", "verify_prefill", "verify", "draft", "draft_prefill"), flat)
    run = simulate(beside({"policy": "adaptive", "depth": 3}, profile=laws))
    fixed = simulate(beside({"policy": "fixed", "depth": 3}, profile=laws))
    assert (verified(run) == verified(fixed)).all()
