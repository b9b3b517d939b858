"""Measured power of devices: samples of clocks, power and memory, and energy counters."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fleet.files import write_file
from fleet.records.schema import SAMPLES, PowerSample

MOST_POINTS = 1000  # points of a curve in a run's header

Floats = NDArray[np.float64]


class EnergyCurve(msgspec.Struct, frozen=True):
    """Energy counter of a device during a run, relative to its first reading.

    Keys:
        device: Name of the device, with the source of its readings.
        times_s: Time of each reading since the run began.
        energy_j: Energy used until then.
    """

    device: str
    times_s: tuple[float, ...]
    energy_j: tuple[float, ...]


def curves_of(samples: Iterable[PowerSample]) -> tuple[EnergyCurve, ...]:
    """Return the energy of each device over time; devices without a reading are left out.

    If a device reports power only, the samples are integrated.
    """
    by_device: dict[str, list[PowerSample]] = {}
    for sample in samples:
        by_device.setdefault(sample.device, []).append(sample)
    curves = []
    for device, own in by_device.items():
        own.sort(key=lambda sample: sample.time_s)
        energy_j = _energy_j(own)
        if energy_j is not None and len(own) > 1:
            chosen = np.unique(np.linspace(0, len(own) - 1, min(len(own), MOST_POINTS)).round().astype(int))
            curves.append(
                EnergyCurve(device, tuple(own[k].time_s for k in chosen), tuple(float(energy_j[k]) for k in chosen))
            )
    return tuple(curves)


def write_samples(samples: Iterable[PowerSample], path: Path) -> None:
    """Write samples as a Parquet file; OutputError if it cannot be written."""
    rows = list(samples)
    columns = [pa.array([row[place] for row in rows], type=field.type) for place, field in enumerate(SAMPLES)]
    content = io.BytesIO()
    pq.write_table(pa.table(columns, schema=SAMPLES), content, compression="zstd")
    write_file(path, content.getvalue())


def _energy_j(own: Sequence[PowerSample]) -> Floats | None:
    counted = np.array([sample.energy_j for sample in own])
    if not np.isnan(counted).any():
        since: Floats = counted - counted[0]
        return since
    power_w, times_s = np.array([sample.power_w for sample in own]), np.array([sample.time_s for sample in own])
    if np.isnan(power_w).any():
        return None
    steps_j: Floats = (power_w[1:] + power_w[:-1]) / 2 * np.diff(times_s)
    return np.concatenate([[0.0], np.cumsum(steps_j)])
