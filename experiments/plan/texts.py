"""What options of a plan say: acceptance, a link, a budget of devices, numbers of requests."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from specfleet.experiments.plan.goals import number_of
from specfleet.fleet.acceptance.models import AcceptanceModel, Geometric, PerPosition, rate_of_mean
from specfleet.fleet.acceptance.published import Stated, Wanted, find_published, published_rows
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.shipped import device_of, shape_of, shipped_case, shipped_name
from specfleet.fleet.hardware.words import FOUND, METHODS, MTP, SYNONYMS
from specfleet.fleet.inputs.nearest import nearest
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.scenario import Acceptance
from specfleet.fleet.scenario.sides import acceptance_of
from specfleet.fleet.times.profile import read_profile
from specfleet.fleet.times.step_time import LinkTime

PUBLISHED = "published"
LINK_LIMITS = {"latency_s": (0.0, 1e9), "bandwidth_bytes_per_s": (1.0, 1e18)}
BUDGET = "write COUNTxDEVICE, several with commas: 8xh100,4xl40s"
FILES = (".toml", ".json")
MOST_DRAFTED = 4096  # tokens of a draft, as drafters.depth


def read_acceptances(texts: Sequence[str]) -> dict[str, Stated]:
    """Read acceptance by drafter, "" for all others: `MODEL=` before it limits it to one.

    `0.8` is one probability for every token, `.82,.68,.57` the share of drafts that reach each position, `2.5@5` a mean
    accepted length at a depth, `published` or `published:DATASET` a row that ships, and `FILE.toml` a scenario or a
    profile. InputError for anything else.
    """
    models: dict[str, Stated] = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.rpartition("="))
        if name in models:
            raise InputError(f"--acceptance {text}: {name or 'all drafters'} got one before; leave one of them out")
        models[name] = _acceptance(f"--acceptance {text}", values)
    return models


def _acceptance(said: str, values: str) -> Stated:
    first, *words = values.casefold().replace(" ", ":").split(":")
    if first == PUBLISHED:
        return Wanted(said, tuple(filter(None, words)))
    if Path(values).suffix in FILES:
        return read_acceptance(Path(values))
    mean, at, depth = values.partition("@")
    if at:
        return Geometric(_rate(said, mean, depth))
    try:
        numbers = [float(value) for value in values.split(",")]
        if len(numbers) == 1 and 1 < numbers[0] < math.inf:
            raise InputError(f"{said}: above 1, a mean accepted length, needs the depth of its drafts: {values}@DEPTH")
        if not all(0 <= share <= 1 for share in numbers):
            raise ValueError
        return Geometric(numbers[0]) if len(numbers) == 1 else PerPosition(survival=tuple(numbers))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"{said}: write a share, falling shares by position, a mean accepted length and its depth, a published "
            "row, or a file: 0.8, .8,.65,.5, 2.5@5, published:DATASET or FILE.toml; with a name before it of one "
            "drafter alone, MODEL=.8,.65"
        ) from error


def _rate(said: str, mean: str, depth: str) -> float:
    """Return the probability a of a token by which a round adds 1 + a + a^2 + ... + a^depth tokens on average."""
    try:
        tokens, drafted = float(mean), int(depth)
        if not (1 <= drafted <= MOST_DRAFTED and 1 <= tokens <= drafted + 1):
            raise ValueError
    except ValueError as error:
        raise InputError(
            f"{said}: write MEAN@DEPTH, 2.5@5: a depth from 1 to {MOST_DRAFTED}, and a mean accepted length from 1 to "
            "depth + 1, which counts the target's own token (bonus), as vLLM does"
        ) from error
    return rate_of_mean(tokens, drafted)


def acceptance_by_drafter(texts: Sequence[str], drafts: Sequence[str]) -> dict[str, Stated]:
    """Return acceptance by model of `drafts`, each named by its path, folder or hub name; or InputError."""
    names: dict[str, set[str]] = {}  # of each model
    for draft in drafts:
        model = draft.rpartition("@")[0] or draft
        own_name = model if model in (*FOUND, MTP) else shape_of(model).name  # of a file, its folder's
        names[model] = {draft, Path(model).name, own_name, shipped_name(model)}
        names[model] |= {word for word, own in SYNONYMS.items() if own == model}
        names[model] |= {word for word in METHODS if own_name.startswith(f"{word}-")}
    accepted: dict[str, Stated] = {}
    for name, acceptance in read_acceptances(texts).items():
        typed = name.casefold(), name.rpartition("/")[2].casefold()  # a shipped model has no owner's name before it
        meant = [model for model, own in names.items() if typed["/" not in model] in map(str.casefold, own)]
        if name in names or not name:
            meant = [name]
        if len(meant) != 1 or meant[0] in accepted:
            why = "no drafter is called so" if not meant else "names several drafters, or one that got one before"
            raise InputError(f"--acceptance {name}=...: {why}; {nearest(name, meant or names)}")
        accepted[meant[0]] = acceptance
    return accepted


def acceptance_at(
    model: str, accepted: Mapping[str, Stated], usual: Acceptance | None, target: Placed, drafter: Placed | None
) -> tuple[Acceptance | None, str]:
    """Return the acceptance of a model's drafts at a target, and of a published one what it is.

    - `model`: "" for none.
    - `accepted`, `usual`: stated by model, and a scenario's.

    Raises InputError where nothing is stated.
    """
    if not model:
        return None, ""
    stated = accepted.get(model, accepted.get("", usual))
    word = model if drafter is None else drafter.shape.head or shipped_name(drafter.shape.name)
    if stated is None:
        rows = sorted(published_rows().values(), key=lambda row: row.target != shipped_name(target.shape.name))
        names = [f"{row.name} {row.shares.split(',')[0]}" for row in rows if row.drafter == word][:4]
        known = f"; at position 1: {', '.join(names)}; --acceptance '{model}=published:NAME' takes all" * bool(names)
        said = f"give the share of {model}'s draft tokens that pass, 0.7, or by position, .8,.6,.5"
        raise InputError(f"--acceptance {model}=...: missing; {said}{known}")
    if not isinstance(stated, Wanted):
        return stated, ""
    row = find_published(stated, shipped_name(target.shape.name), word)
    said = f"{row.name}{'' if row.temperature is None else f', temperature {row.temperature:g}'}; {row.source}"
    if (row.target, row.drafter) != (shipped_name(target.shape.name), word):
        said += f"; borrowed from another model, for {word} at {target.shape.name}: assumed"
    return row.model(), f"acceptance of {row.drafter}: {row.shares} by position, {row.basis}: {said}"


def acceptance_notes(texts: Sequence[str]) -> Iterator[str]:
    """Say what is assumed of an acceptance that is one number."""
    for text in texts:
        name, _, values = (part.strip() for part in text.rpartition("="))
        mean, at, depth = values.partition("@")
        if "," in values or Path(values).suffix in FILES or values.casefold().startswith(PUBLISHED):
            continue
        rate = _rate(text, mean, depth) if at else float(values)
        why = f", by {mean} tokens a round at depth {depth} (its bonus token included)" if at else ""
        said = f"assumes that a draft token is accepted with probability {100 * rate:.3g}% if all before it were"
        yield f"acceptance{f' of {name}' * bool(name)}: {said}{why}"


def read_acceptance(path: Path) -> AcceptanceModel:
    """Return the acceptance in a scenario (TOML), as `specfleet import` writes it, or in a profile (JSON).

    Raises InputError for a file without acceptance of drafts.
    """
    if path.suffix == ".json":
        model: Acceptance | None = read_profile(str(path), Path()).acceptance
    else:
        model = acceptance_of(read_scenario(path))
    if not isinstance(model, AcceptanceModel):
        raise InputError(f"--acceptance {path}: has no acceptance of drafts; `specfleet import` writes files that have")
    return model


def read_link(text: str) -> LinkTime:
    """Read a link, one way; `0ms` is none. Raises InputError for anything else."""
    known: dict[str, float] = {}
    for part in text.split("+"):
        for key, (least, most) in LINK_LIMITS.items():
            try:
                number = quantity(part, key, False)
            except ValueError:
                continue
            if number is not None and key not in known and least <= number <= most:
                known[key] = number
                break
        else:
            raise InputError(
                f"--link {text}: {part!r} is neither; write a latency up to 1e9s (0ms is none), a bandwidth of 8bit "
                "to 1e9GB/s, or both: 25Gbit+50us; commas separate links to compare"
            )
    return LinkTime(**known)


def read_budget(text: str) -> dict[str, int]:
    """Read `8xh100,4xl40s`; InputError for anything else, and for an unknown device."""
    devices: dict[str, int] = {}
    for part in text.split(","):
        count, times, kind = part.strip().partition("x")
        kind = shipped_case(kind)
        if not times or not count.isdecimal() or not 0 < int(count) <= 4096 or kind in devices:
            raise InputError(f"--devices {text}: {BUDGET}")
        device_of(kind)
        devices[kind] = int(count)
    return devices


def read_rates(given: str | float | Iterable[float]) -> list[float]:
    """Read arrivals, `3/s` or `1/s,2/s,4/s`, or numbers; InputError for what is none."""
    rates = given.split(",") if isinstance(given, str) else [given] if isinstance(given, (int, float)) else given
    return [number_of(f"--arrivals {rate}", str(rate), "per_s") for rate in rates]


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
