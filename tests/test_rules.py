"""The verification rules are lossless: exactly, by enumeration, and as drawn."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from engine.rules import acceptance_probabilities, draw, normalised, residual, rounded, verify_greedy, verify_sampled

VOCABULARY = 3


def random_chain(rng: np.random.Generator, depth: int) -> dict[tuple[int, ...], np.ndarray]:
    """A distribution over the next token for every prefix shorter than `depth`."""
    prefixes = (prefix for n in range(depth) for prefix in itertools.product(range(VOCABULARY), repeat=n))
    return {prefix: rng.dirichlet(np.full(VOCABULARY, 0.7)) for prefix in prefixes}


def along(chain: dict[tuple[int, ...], np.ndarray], tokens: tuple[int, ...], count: int) -> np.ndarray:
    return np.stack([chain[tokens[:n]] for n in range(count)])


def probability(chain: dict[tuple[int, ...], np.ndarray], tokens: tuple[int, ...], start: int = 0) -> float:
    return float(np.prod([chain[tokens[:n]][tokens[n]] for n in range(start, len(tokens))]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_sampling_rule_follows_the_target_exactly(seed: int, depth: int) -> None:
    """Sum over all drafts, acceptances and corrections, each output completed by the target."""
    rng = np.random.default_rng(seed)
    p, q = random_chain(rng, depth + 1), random_chain(rng, depth)
    output = dict.fromkeys(itertools.product(range(VOCABULARY), repeat=depth + 1), 0.0)
    for drafted in itertools.product(range(VOCABULARY), repeat=depth):
        ps, qs = along(p, drafted, depth + 1), along(q, drafted, depth)
        reached = probability(q, drafted)
        accept = acceptance_probabilities(list(drafted), qs, ps)
        for accepted in range(depth + 1):
            last = accepted == depth
            stopped = reached * (1.0 if last else 1 - accept[accepted])
            own = ps[depth] if last else residual(qs[accepted], ps[accepted])
            for full in output:
                if full[:accepted] == drafted[:accepted]:
                    output[full] += stopped * own[full[accepted]] * probability(p, full, accepted + 1)
            if not last:
                reached *= accept[accepted]
    distance = 0.5 * sum(abs(mass - probability(p, full)) for full, mass in output.items())
    assert distance < 1e-12


def test_drawn_outcomes_have_the_enumerated_frequencies() -> None:
    """Chi-square over (accepted length, next token); a correct rule fails one seed in 1000, and this seed is fixed."""
    rng = np.random.default_rng(7)
    q, p = rng.dirichlet(np.ones(4), size=2), rng.dirichlet(np.ones(4), size=3)
    drafted = [int(q[0].argmax()), int(q[1].argmax())]
    accept = acceptance_probabilities(drafted, q, p)
    expected = {
        **{(0, token): (1 - accept[0]) * mass for token, mass in enumerate(residual(q[0], p[0]))},
        **{(1, token): accept[0] * (1 - accept[1]) * mass for token, mass in enumerate(residual(q[1], p[1]))},
        **{(2, token): accept[0] * accept[1] * mass for token, mass in enumerate(p[2])},
    }
    draws = 20_000
    counts = dict.fromkeys(expected, 0)
    for _ in range(draws):
        counts[verify_sampled(drafted, q, p, rng)] += 1
    possible = [outcome for outcome, mass in expected.items() if mass > 0]
    assert all(counts[outcome] == 0 for outcome in expected if outcome not in possible)
    observed = np.array([counts[outcome] for outcome in possible])
    wanted = np.array([expected[outcome] for outcome in possible])
    assert chisquare(observed, wanted / wanted.sum() * draws).pvalue > 0.001


def test_greedy_verification_accepts_the_common_prefix_and_adds_the_targets_own_token() -> None:
    assert verify_greedy([5, 6, 7], [5, 6, 9, 1]) == (2, 9)
    assert verify_greedy([5, 6, 7], [5, 6, 7, 1]) == (3, 1)
    assert verify_greedy([], [4]) == (0, 4)


def test_both_ends_read_the_same_distribution_from_the_wire() -> None:
    distribution = np.random.default_rng(0).dirichlet(np.ones(50))
    sent = rounded(distribution)
    received = np.frombuffer(sent.tobytes(), dtype=np.float16)
    assert np.array_equal(normalised(sent), normalised(received))
    assert normalised(sent).sum() == pytest.approx(1.0, abs=1e-12)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    weights = np.array([0.0, 0.5, 0.0, 0.5, 0.0])

    class Extreme:
        def __init__(self, value: float) -> None:
            self.value = value

        def random(self) -> float:
            return self.value

    assert draw(weights, Extreme(0.0)) == 1  # type: ignore[arg-type]  # only `random` is used
    assert draw(weights, Extreme(np.nextafter(1.0, 0.0))) == 3  # type: ignore[arg-type]
