"""Models, devices and engines by name: shipped ones, or a user's files."""

from pathlib import Path

from specfleet.fleet.data.shipped import shipped_devices, shipped_engines, shipped_models
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.configs import shape_of_config
from specfleet.fleet.hardware.device import Accelerator, HostOverhead
from specfleet.fleet.hardware.shape import ModelShape
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import is_file, read_json, read_toml, shortened

CONFIG = "config.json"


def device_of(name: str) -> Accelerator:
    """Return a device by its shipped name, or from a TOML file of the same keys; InputError lists the shipped names."""
    return convert(read_toml(_path(name, "device", shipped_devices())), Accelerator, f"device {shortened(name)}")


def engine_of(name: str) -> HostOverhead:
    """Return an engine by its shipped name, or from a TOML file of the same keys; InputError lists the shipped
    names."""
    return convert(read_toml(_path(name, "engine", shipped_engines())), HostOverhead, f"engine {shortened(name)}")


def shape_of(name: str) -> ModelShape:
    """Return a model by its shipped name, or from a config.json or its folder; InputError lists the shipped names."""
    models = shipped_models()
    if name in models:
        return shape_of_config(name, models[name], f"model {name}")
    path = Path(name)
    if is_file(path / CONFIG):
        path = path / CONFIG
    if not is_file(path):
        raise InputError(
            f"model {shortened(name)}: does not ship, and is no {CONFIG} nor the folder of one; allowed: "
            f"{', '.join(models)}"
        )
    return shape_of_config(path.parent.name or path.stem, read_json(path), str(path))


def _path(name: str, what: str, shipped: dict[str, Path]) -> Path:
    path = shipped.get(name, Path(name))
    if not is_file(path):
        raise InputError(f"{what} {shortened(name)}: does not ship, and is no file; allowed: {', '.join(shipped)}")
    return path
