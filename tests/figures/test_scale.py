"""The figure of time and memory over N shows every size of every path, with names and units at its axes."""

import pandas as pd
import pytest

from figures import scale


@pytest.mark.parametrize("paths", [["simpy"], ["simpy", "fast"]])
def test_each_path_is_a_line_through_its_sizes_in_both_panels(paths: list[str]) -> None:
    sizes = [10, 100, 1000]
    table = pd.DataFrame(
        [
            {"path": path, "targets": N, "round_us": 40.0 + N / 100 - 30 * (path == "fast"), "peak_mb": 100.0 + N}
            for path in paths
            for N in sizes
        ]
    )
    figure = scale.draw(table)
    assert [axes.get_ylabel() for axes in figure.axes] == ["processor time for a round, us", "peak memory, MB"]
    for axes, column in zip(figure.axes, ("round_us", "peak_mb"), strict=True):
        assert axes.get_xlabel() == "targets, N"
        assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "100", "1,000"]
        drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        assert drawn == [(sizes, list(table[table.path == path][column])) for path in paths]
