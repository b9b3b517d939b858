"""Power, clock and load of a Jetson's GPU, as Linux shows them below /sys. Missing values are NaN. Without torch."""

import re
from collections.abc import Callable
from pathlib import Path

from specfleet.fleet.records.schema import UNKNOWN, PowerSample

SYS = Path("/sys")
GPU = re.compile(r"\d+\.(gpu|ga10b|gv11b|gp10b)")  # Orin (JetPack 6, 5), Xavier, TX2
WHOLE = ("VDD_IN", "POM_5V_IN")  # rails that feed all others


class TegraMeter:
    """The integrated GPU of a Jetson; its power is that of the whole module. OSError if this host is none.

    A GPU that sleeps has no counters for that time.
    """

    def __init__(self, folder: Path = SYS) -> None:
        gpus = [path for path in sorted(folder.glob("class/devfreq/*")) if GPU.fullmatch(path.name)]
        if not gpus:
            raise FileNotFoundError(folder / "class/devfreq")
        self.gpu, rails = gpus[0], rails_of(folder)
        self.rails = [rails[name] for name in WHOLE if name in rails][:1] or list(rails.values())
        self.device = f"Jetson {self.gpu.name} (tegra)"

    def read(self) -> PowerSample:
        """Return its current reading, from any thread."""
        watts = known(lambda: sum(number_in(mv) * number_in(ma) for mv, ma in self.rails) / 1e6)
        return PowerSample(
            device=self.device,
            graphics_clock_mhz=known(lambda: number_in(self.gpu / "cur_freq") / 1e6),
            power_w=watts if self.rails else UNKNOWN,
            utilisation=known(lambda: number_in(self.gpu / "device" / "load") / 1000),
        )


def rails_of(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Return the files of each measured rail's voltage (mV) and current (mA), by its label.

    An INA3221 has three channels; further files are sums of them. Rails labelled NC are not connected.
    """
    rails = {}
    for label in sorted(folder.glob("bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in[123]_label")):
        name, channel = label.read_text().strip(), label.name[2]
        if name != "NC":
            rails[name] = label.with_name(f"in{channel}_input"), label.with_name(f"curr{channel}_input")
    return rails


def number_in(path: Path) -> float:
    """Return the number that a file holds."""
    return float(path.read_text())


def known(read: Callable[[], float]) -> float:
    """Return what `read` returns; NaN where it cannot be read."""
    try:
        return read()
    except (OSError, ValueError):
        return UNKNOWN
