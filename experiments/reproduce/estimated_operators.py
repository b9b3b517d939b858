"""Estimates of the operators that the Vidur simulator publishes, each device with the efficiencies of the other one."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from calibrate.operators import Operators, estimated_s, of_other, read_operators
from experiments.reproduce.rows import Row, row
from fleet.errors import InputError
from fleet.estimate.passes import Placed
from fleet.estimate.profile import placed_of
from fleet.inputs.text import is_file

VIDUR = {"a100-80gb": "vidur-a100-llama2-7b-mlp.csv", "h100": "vidur-h100-llama2-7b-mlp.csv"}
SHOWN_TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 4096)


def vidur_files(folder: str | None) -> dict[str, Path]:
    """Return Vidur's files that are in the folder, by device."""
    return {device: file for device, name in VIDUR.items() if is_file(file := Path(folder or "") / name) and folder}


def vidur(folder: str | None) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of each file that is there, and what to say of those that are not."""
    found, rows = vidur_files(folder), {}
    if folder is not None and not Path(folder).is_dir():
        raise InputError(f"--data {folder}: no folder; it holds {', '.join(VIDUR.values())}, or some of them")
    for device, file in found.items():
        other = next(name for name in VIDUR if name != device)
        rows[f"Vidur, operators of Llama-2-7B on {device}"] = [
            row(
                "operators of a layer, ms",
                {"device": device, "efficiencies of": other, "workers": one.parallel, "tokens": one.tokens},
                "estimated",
                1000 * sum(one.times_s.values()),
                1000 * ours_s,
            )
            for one, ours_s in _crosswise(device, read_operators(file))
            if one.tokens in SHOWN_TOKENS
        ]
    where = f"not in {folder}" if folder else "give --data FOLDER"
    return rows, [
        f"no measurements of Vidur for {device} ({name}: {where})"
        for device, name in VIDUR.items()
        if device not in found
    ]


def _crosswise(device: str, measured: Iterable[Operators]) -> list[tuple[Operators, float]]:
    """Estimate the operators of a layer on a device, in seconds, with the efficiencies of the other one."""
    other = placed_of(f"llama-2-7b@{next(name for name in VIDUR if name != device)}").device

    def placed(parallel: int) -> Placed:
        own = placed_of(f"llama-2-7b@{device}", parallel=parallel)
        return msgspec.structs.replace(own, device=of_other(own.device, other))

    return [(one, sum(estimated_s(placed(one.parallel), one.tokens).values())) for one in measured]


def whole_grid(device: str, folder: str | None) -> str:
    """Say how far the estimates are off at every place of a file, of which the table shows some."""
    pairs = _crosswise(device, read_operators(vidur_files(folder)[device]))
    errors = np.array([abs(ours_s / sum(one.times_s.values()) - 1) for one, ours_s in pairs])
    told = f"mean absolute error {errors.mean():.1%}, worst {errors.max():.1%}"
    return f"all {len(errors)} places of {VIDUR[device]}: {told}"
