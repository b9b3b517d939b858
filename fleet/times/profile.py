"""Hardware profiles: what each step costs on a machine, as numbers with their spread and their provenance.

A profile is written by `calibrate/` from measurements, or shipped with numbers from stated sources. The simulator
draws its times from it, the analytic model takes its means.
"""

import hashlib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fleet.chance.acceptance import AcceptanceModel
from fleet.errors import InputError
from fleet.times.effects import IdleEffect, Power, RecentLoad, Turns
from fleet.times.step_time import LinkTime, Seconds, StepTime

STEPS = ("draft", "verify", "decode", "draft_prefill", "verify_prefill")  # the step times of a profile, by name


class HardwareProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything the simulator needs to know about a machine and a model pair.

    Step times: `draft` by speculation length and context, `verify` by tokens fed (draft tokens + 1) and context,
    `decode` of the standalone target by context, the two prefills by prompt tokens. `turnaround_s`: what the drafter
    does between the end of a step and the start of the next one (send, receive, decide), and in a batch
    `turnaround_row_s` more for each further row. `wake_up_s`: from the arrival
    of a message at an idle station to the start of the step that it asks for. `catch_up_s`: what a draft takes longer
    after full acceptance, where the drafter feeds its own last token by a step of its own. `realign`: unpadding and
    padding a batch anew, its cache included, by rows and context. `transfer`:
    fetching a session's cache from another drafter, by its tokens. `contention[k-1]` multiplies every step
    of a shared device while k stations are active on it. `turns[k-1]`: k targets and their drafter take turns on it,
    each in its own process (the last entry beyond the list); `one_process`: all of them in one. `control_s`: the time
    of the engine's control computation at the pace that all step times refer to; 0 if unknown.
    `vocabulary` sizes the draft distributions on the wire; `hidden`, the numbers of one hidden state of the target,
    what EAGLE heads are told. `sources` names where each number comes from. `measured` keeps raw quantiles, residuals
    and what else a reader needs to judge the fits.
    """

    name: str
    draft: StepTime
    verify: StepTime
    decode: StepTime = StepTime()
    draft_prefill: StepTime = StepTime()
    verify_prefill: StepTime = StepTime()
    realign: StepTime = StepTime()
    transfer: StepTime = StepTime()
    catch_up_s: Seconds = 0.0
    turnaround_s: Seconds = 0.0
    turnaround_row_s: Seconds = 0.0
    wake_up_s: Seconds = 0.0
    link: LinkTime = LinkTime()
    idle: IdleEffect = IdleEffect()
    recent_load: RecentLoad | None = None
    turns: Annotated[tuple[Turns, ...], Meta(min_length=1)] = (Turns(),)
    one_process: Turns = Turns()
    contention: tuple[float, ...] = (1.0,)
    acceptance: AcceptanceModel | None = None
    vocabulary: int = 0
    hidden: int = 0
    control_s: Seconds = 0.0
    power: Power | None = None
    provenance: dict[str, str] = {}
    sources: dict[str, str] = {}
    measured: dict[str, Any] = {}

    def digest(self) -> str:
        """Fingerprint of the numbers: the same for equal profiles, wherever they were read from."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def shipped_profiles() -> dict[str, Path]:
    """List the profiles that come with the project, by name."""
    folder = Path(str(resources.files("calibrate"))) / "profiles"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def read_profile(name: str, base: Path) -> HardwareProfile:
    """Read a profile by its shipped name, or from a JSON file, relative to the folder `base`.

    Raises InputError if there is none, or if it does not parse.
    """
    shipped = shipped_profiles()
    path = shipped.get(name, base / name)
    if not path.is_file():
        raise InputError(f"profile: no file {name!r}; give a path, or one of {', '.join(shipped) or 'none shipped'}")
    try:
        return msgspec.json.decode(path.read_bytes(), type=HardwareProfile)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: {error}") from error


def write_profile(profile: HardwareProfile, path: Path) -> None:
    """Write a profile as JSON, indented for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
