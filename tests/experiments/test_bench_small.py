"""What every user waits for is measured as it is used, and held against what it may be."""

import pytest

pytest.importorskip("torch")

from experiments.bench.small import AIMS_S, METRICS, bench_small, show_small


@pytest.mark.slow
def test_each_is_done_so_often_and_takes_time() -> None:
    times_s = bench_small(2)
    assert set(times_s) == set(AIMS_S)
    for of_name in times_s.values():
        assert len(of_name) == 2
        assert min(of_name) > 0


@pytest.mark.parametrize(("times_s", "word"), [((0.5, 0.5), "met"), ((2.0, 2.0), "missed"), ((0.5, 1.5), "open")])
def test_times_are_held_against_their_aim_by_their_interval(
    times_s: tuple[float, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_small({METRICS: [AIMS_S[METRICS] * time for time in times_s]})
    assert word in capsys.readouterr().out
