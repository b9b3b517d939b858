"""The benchmark of many targets measures what it says, each size in a process of its own."""

import pytest

from experiments.bench.scale import LEAST_REQUESTS, bench_scale, show_scale


@pytest.mark.slow
def test_each_size_is_simulated_in_a_process_and_shown_beside_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    costs = bench_scale((2, 4))
    for targets, cost in zip((2, 4), costs, strict=True):
        assert cost.targets == targets
        assert 20 * LEAST_REQUESTS < cost.rounds < 35 * LEAST_REQUESTS  # 99 tokens, 3.7 a round
        assert 1e-6 < cost.round_s < 1e-2
        assert 3e7 < cost.peak_bytes < 2e9
    show_scale(costs)
    printed = capsys.readouterr().out
    assert "over N = 2" in printed
    assert str(costs[1].rounds) in printed
