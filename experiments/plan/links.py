"""A link as a text: a latency, a bandwidth, or both, `25Gbit+50us`."""

from fleet.errors import InputError
from fleet.inputs.quantities import quantity
from fleet.times.step_time import LinkTime

KEYS = ("latency_s", "bandwidth_bytes_per_s")


def link_of(text: str) -> LinkTime:
    """Read a link; nothing is none. Raises InputError for anything else."""
    found: dict[str, float] = {}
    for part in filter(None, text.split("+")):
        for key in KEYS:
            try:
                number = quantity(part, key, False)
            except ValueError:
                continue
            if number is not None and key not in found and (number > 0 or (number == 0 and key == KEYS[0])):
                found[key] = number
                break
        else:
            raise InputError(f"--link {text}: {part!r} is neither; write a latency, a bandwidth, or both: 25Gbit+50us")
    return LinkTime(**found)
