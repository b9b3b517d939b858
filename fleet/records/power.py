"""Measured devices: samples of clocks, power, load and memory, and energy counters."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from specfleet.fleet.files import write_file
from specfleet.fleet.records.schema import SAMPLES, PowerSample

MAX_POINTS = 1000  # points of a curve in a run's header

Floats = NDArray[np.float64]


class DeviceCurve(msgspec.Struct, frozen=True):
    """Counters of a device during a run; empty for a counter that it does not have.

    Keys:
        device: Name of the device, with the source of its readings.
        times_s: Time of each reading since the run began.
        energy_j: Energy used until then, since the first reading.
        graphics_clock_mhz: Its clock then.
        utilisation (share): Its utilisation then.
        stations: The stations that use it.
    """

    device: str
    times_s: tuple[float, ...]
    energy_j: tuple[float, ...] = ()
    graphics_clock_mhz: tuple[float, ...] = ()
    utilisation: tuple[float, ...] = ()
    stations: tuple[str, ...] = ()


def curves_of(samples: Iterable[PowerSample], stations: Sequence[str] = ()) -> tuple[DeviceCurve, ...]:
    """Return the counters of each device over time; a device without any is left out.

    If a device reports power only, the samples are integrated. `stations`: those that use these devices.
    """
    by_device: dict[str, list[PowerSample]] = {}
    for sample in samples:
        by_device.setdefault(sample.device, []).append(sample)
    curves = []
    for device, readings in by_device.items():
        readings.sort(key=lambda sample: sample.time_s)
        chosen = np.unique(np.linspace(0, len(readings) - 1, min(len(readings), MAX_POINTS)).round().astype(int))
        columns = {
            "energy_j": np.array([sample.energy_j for sample in readings]) - readings[0].energy_j,
            "graphics_clock_mhz": np.array([sample.graphics_clock_mhz for sample in readings]),
            "utilisation": np.array([sample.utilisation for sample in readings]),
        }
        if np.isnan(columns["energy_j"]).any():
            columns["energy_j"] = integral(
                [sample.time_s for sample in readings], [sample.power_w for sample in readings]
            )
        known = {name: tuple(column[chosen].tolist()) for name, column in columns.items() if not np.isnan(column).any()}
        if known and len(readings) > 1:
            times_s = tuple(readings[k].time_s for k in chosen)
            curves.append(DeviceCurve(device, times_s, **known, stations=tuple(stations)))
    return tuple(curves)


def write_samples(samples: Iterable[PowerSample], path: Path) -> None:
    """Write samples as a Parquet file; OutputError if it cannot be written."""
    content = io.BytesIO()
    table = pa.Table.from_pylist([sample._asdict() for sample in samples], schema=SAMPLES)
    pq.write_table(table, content, compression="zstd")
    write_file(path, content.getvalue())


def integral(times_s: ArrayLike, values: ArrayLike) -> Floats:
    """Return the integral of values since the first of their times, at each of them."""
    heights = np.asarray(values, dtype=float)
    steps: Floats = (heights[1:] + heights[:-1]) / 2 * np.diff(times_s)
    return np.concatenate([[0.0], np.cumsum(steps)])
