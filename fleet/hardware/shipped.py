"""Models, devices and engines by name: shipped ones, or a user's files."""

from pathlib import Path
from typing import Any

from specfleet.fleet.data.shipped import shipped_files, shipped_models, shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.configs import shape_of_config
from specfleet.fleet.hardware.device import Accelerator, HostOverhead
from specfleet.fleet.hardware.published import KEY
from specfleet.fleet.hardware.shape import ModelShape
from specfleet.fleet.inputs.nearest import nearest
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import is_file, read_json, read_toml, shortened

CONFIG = "config.json"


def shipped_case(device: str) -> str:
    """Return a device's name as it ships, whatever its case; other names as they are."""
    return device.lower() if device.lower() in shipped_files("devices") else device


def device_of(name: str) -> Accelerator:
    """Return a device by its shipped name, or from a TOML file, which states numbers; InputError names the nearest."""
    content = read_toml(_path(name, "device"))
    return convert(_with_sources(content), Accelerator, f"device {shortened(name)}")


def _with_sources(content: Any) -> Any:
    if isinstance(content, dict) and "value" not in content:
        return {key: _with_sources(value) for key, value in content.items()}
    return {"value": content, "source": "stated: the device's file"} if isinstance(content, int | float) else content


def engine_of(name: str) -> HostOverhead:
    """Return an engine by its shipped name, or from a TOML file of the same keys; InputError names the nearest."""
    return convert(read_toml(_path(name, "engine")), HostOverhead, f"engine {shortened(name)}")


def shape_of(name: str) -> ModelShape:
    """Return a model by its shipped name or that at a hub, or from a config.json or its folder.

    Raises InputError, with the nearest shipped names, for none of these.
    """
    models, path = shipped_models(), Path(name)
    if name in models:
        return shape_of_config(name, models[name], f"model {name}")
    if is_file(path / CONFIG):
        path = path / CONFIG
    if is_file(path):
        return shape_of_config(path.parent.name or path.stem, _with_precisions(path), str(path))
    if content := _at_hub(name):
        return shape_of_config(name.rpartition("/")[2], content, f"model {shortened(name)}")
    raise InputError(
        f"model {shortened(name)}: does not ship, and is no {CONFIG} nor the folder of one; "
        f"{nearest(name.rpartition('/')[2], models)}; `specfleet plan --list models` lists all"
    )


def _with_precisions(path: Path) -> Any:
    """Return a config.json, with what a hf_quant_config.json beside it says of precisions."""
    content, beside = read_json(path), path.with_name("hf_quant_config.json")
    if not is_file(beside) or not isinstance(content, dict) or content.get(KEY):
        return content
    stated = read_json(beside)
    return {**content, KEY: stated.get("quantization", stated) if isinstance(stated, dict) else stated}


def shipped_name(name: str) -> str:
    """Return the shipped name of a model by its name at a hub; of others their own in small letters, plain."""
    return _named_at_hub(name)[0]


def _named_at_hub(name: str) -> tuple[str, str, str]:
    """Return a model's shipped name, its own, and the end that says its precision, by its name at a hub."""
    tables = shipped_tables("published")["hub"]
    own = name.rpartition("/")[2].lower()
    end = max((end for end in tables["quantised"] if own.endswith(end)), key=len, default="")
    plain = own = own.removesuffix(end)
    for part in tables["same"]["parts"]:
        plain = plain.replace(part, "")
    return tables["names"].get(plain, plain), own, end


def _at_hub(name: str) -> dict[str, Any] | None:
    """Return the config.json of a model by its name at a hub; None if no shipped shape is that model's."""
    tables, models = shipped_tables("published")["hub"], shipped_models()
    shipped, own, end = _named_at_hub(name)
    if shipped not in models:
        return None
    return {**models[shipped], **tables["changes"].get(own, {}), **tables["quantised"].get(end, {})}


def _path(name: str, what: str) -> Path:
    shipped = shipped_files(f"{what}s")
    path = shipped.get(name, Path(name))
    if not is_file(path):
        copies = ", `specfleet init h100` writes a copy to change" if what == "device" else ""
        raise InputError(
            f"{what} {shortened(name)}: does not ship, and is no file; {nearest(name, shipped)}; "
            f"`specfleet plan --list {what}s` lists all{copies}"
        )
    return path
