"""The figure of what a round costs and how much memory a star takes; measured processes do without it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from experiments.bench.scale import LEAST_REQUESTS, REQUESTS_OF_TARGET, Cost, both_paths, show_scale
from figures import scale
from figures.style import format_of, save


def figure_file(name: str) -> Path:
    """Return the place of a figure; InputError where none can be written there."""
    format_of(Path(name))
    return Path(name)


def tell_scale(figure: Path | None) -> None:
    """Simulate stars of many sizes by each path, print what they cost, and draw it if that is asked for."""
    costs = both_paths()
    for path, of_path in costs.items():
        show_scale(of_path, path)
    if figure is not None:
        draw_scale(costs, figure)


def draw_scale(costs: Mapping[str, Sequence[Cost]], out: Path) -> None:
    """Draw costs by path over N into a file, whose ending says the format."""
    rows = [
        {"path": path, "targets": one.targets, "round_us": 1e6 * one.round_s, "peak_mb": one.peak_bytes / 1e6}
        for path, of_path in costs.items()
        for one in of_path
    ]
    caption = (
        f"One star of N targets, simulated with full records, each size in a process of its own: {REQUESTS_OF_TARGET} "
        f"requests a target, {LEAST_REQUESTS} at least, of 27 rounds each. Memory is the most that the process had, "
        "records and libraries included. The loop had been compiled before."
    )
    save(scale.draw(pd.DataFrame(rows)), out, caption)
