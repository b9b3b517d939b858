"""What options of a plan say: acceptance, a link, a budget of devices, numbers of requests."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from specfleet.experiments.plan.goals import number_of
from specfleet.fleet.acceptance.models import AcceptanceModel, Geometric, PerPosition
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.shipped import device_of
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.scenario import Acceptance
from specfleet.fleet.times.profile import HardwareProfile, read_profile
from specfleet.fleet.times.step_time import LinkTime

LINK_KEYS = ("latency_s", "bandwidth_bytes_per_s")
BUDGET = "write COUNTxDEVICE, several with commas: 8xh100,4xl40s"


def read_acceptances(texts: Sequence[str]) -> dict[str, AcceptanceModel]:
    """Read `0.8`, `.82,.68,.57` or `MODEL=.82,.68`: one probability for every token, or the share of drafts that reach
    each position; or a file, `MODEL=FILE.toml`, a scenario or a profile. By drafter, "" for all others.
    """
    models: dict[str, AcceptanceModel] = {}
    for text in texts:
        name, _, values = text.rpartition("=")
        if name in models:
            raise InputError(f"--acceptance {text}: {name or 'all drafters'} got one before; leave one of them out")
        if Path(values).suffix in (".toml", ".json"):
            models[name] = read_acceptance(Path(values))
            continue
        try:
            numbers = [float(value) for value in values.split(",")]
            if not all(0 <= share <= 1 for share in numbers):
                raise ValueError
            models[name] = Geometric(numbers[0]) if len(numbers) == 1 else PerPosition(survival=tuple(numbers))
        except ValueError as error:
            raise InputError(
                f"--acceptance {text}: write a share, falling shares by position, or a file: 0.8, .8,.65,.5 or "
                "FILE.toml; with a name before it of one drafter alone, MODEL=.8,.65"
            ) from error
    return models


def read_acceptance(path: Path) -> AcceptanceModel:
    """Return the acceptance in a scenario (TOML), as `specfleet import` writes it, or in a profile (JSON).

    Raises InputError for a file without acceptance of drafts.
    """
    if path.suffix == ".json":
        model: Acceptance | None = read_profile(str(path), Path()).acceptance
    else:
        scenario = read_scenario(path)
        profile = scenario.profile
        measured = profile.acceptance if isinstance(profile, HardwareProfile) else None
        model = scenario.acceptance or measured
    if not isinstance(model, AcceptanceModel):
        raise InputError(f"--acceptance {path}: has no acceptance of drafts; `specfleet import` writes files that have")
    return model


def read_link(text: str) -> LinkTime:
    """Read a link, one way; `0ms` is none. Raises InputError for anything else."""
    known: dict[str, float] = {}
    for part in text.split("+"):
        for key in LINK_KEYS:
            try:
                number = quantity(part, key, False)
            except ValueError:
                continue
            if number is not None and key not in known and (number > 0 or (number == 0 and key == LINK_KEYS[0])):
                known[key] = number
                break
        else:
            raise InputError(
                f"--link {text}: {part!r} is neither; write a latency, a bandwidth, or both: 25Gbit+50us; 0ms is none"
            )
    return LinkTime(**known)


def read_budget(text: str) -> dict[str, int]:
    """Read `8xh100,4xl40s`; InputError for anything else, and for an unknown device."""
    devices: dict[str, int] = {}
    for part in text.split(","):
        count, times, kind = part.strip().partition("x")
        if not times or not count.isdecimal() or not 0 < int(count) <= 4096 or kind in devices:
            raise InputError(f"--devices {text}: {BUDGET}")
        device_of(kind)
        devices[kind] = int(count)
    return devices


def read_rates(given: str | float | Iterable[float]) -> list[float]:
    """Read arrivals, `3/s` or `1/s,2/s,4/s`, or numbers; InputError for what is none."""
    if isinstance(given, str):
        return [number_of(f"--arrivals {text}", text, "per_s") for text in given.split(",")]
    numbers = [given] if isinstance(given, (int, float)) else list(given)
    return [number_of(f"--arrivals {number:g}", str(number), "per_s") for number in numbers]


def read_in_flight(given: str | int | Iterable[int], most: int) -> list[int]:
    """Read numbers of requests in flight, `1,8,32,64`, up to `most`; InputError for what is none."""
    texts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else list(given)
    try:
        numbers = [int(text) for text in texts]
    except ValueError as error:
        raise InputError(f"--in-flight {given}: write whole numbers, 1,8,32,64") from error
    if numbers and not 1 <= min(numbers) <= max(numbers) <= most:
        raise InputError(f"--in-flight {given}: needs whole numbers from 1; simulated up to {most}")
    return numbers
