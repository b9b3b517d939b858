"""Frames to another process of this host and back."""

from specfleet.calibration.links import measure_round_trips


def test_every_frame_comes_back_in_its_own_time() -> None:
    small_s, large_s = measure_round_trips([64, 1 << 20], 2)
    assert len(small_s) == len(large_s) == 2
    assert min(*small_s, *large_s) > 0
