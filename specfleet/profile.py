"""Hardware profiles: what each step costs on a machine, as numbers with their spread and their provenance.

A profile is written by `calibrate/` from measurements, or shipped with numbers from stated sources. The simulator
draws its times from it, the analytic model takes its means.
"""

import bisect
import hashlib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.acceptance import AcceptanceModel
from specfleet.errors import InputError

STEPS = ("draft", "verify", "decode", "draft_prefill", "verify_prefill")  # the step times of a profile, by name
Seconds = Annotated[float, Meta(ge=0)]


class Constant(msgspec.Struct, frozen=True, tag="constant", tag_field="spread", forbid_unknown_fields=True):
    """No spread: every draw is the mean."""

    def ratios(self, uniforms: np.ndarray) -> np.ndarray:
        """Multipliers of the mean for uniform numbers in [0, 1)."""
        return np.ones_like(uniforms)


class Exponential(msgspec.Struct, frozen=True, tag="exponential", tag_field="spread", forbid_unknown_fields=True):
    """Exponentially distributed times, as queueing theory likes them."""

    def ratios(self, uniforms: np.ndarray) -> np.ndarray:
        """Multipliers of the mean for uniform numbers in [0, 1)."""
        exponential: np.ndarray = -np.log1p(-uniforms)
        return exponential


class Quantiles(msgspec.Struct, frozen=True, tag="quantiles", tag_field="spread", forbid_unknown_fields=True):
    """The measured spread: quantiles of measured time over fitted time, interpolated between the levels.

    `levels` rise from 0 to 1; `ratios_at` has one value a level.
    """

    levels: tuple[float, ...]
    ratios_at: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = list(self.levels) == sorted(self.levels) and list(self.ratios_at) == sorted(self.ratios_at)
        if len(self.levels) != len(self.ratios_at) or len(self.levels) < 2 or not rising:
            raise ValueError("quantiles need equally many rising levels and ratios, two at least")

    def ratios(self, uniforms: np.ndarray) -> np.ndarray:
        """Multipliers of the mean for uniform numbers in [0, 1)."""
        interpolated: np.ndarray = np.interp(uniforms, self.levels, self.ratios_at)
        return interpolated


Spread = Constant | Exponential | Quantiles


class StepTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of a step over `tokens` new tokens after `context` known ones: a + b k + c n + e k n, times the spread.

    StarSD's S(d) = d t_s (equation 5) is the case a = c = e = 0; the fixed cost `base_s` is real (kernel launches,
    Python) and belongs to it. In a batch, tokens and context are those of the longest row, which sets the time; each
    further row adds `per_row_s` and `per_row_context_s` a context token, and each token of further rows, padding
    included where there is any, adds `per_row_token_s`. However many they are, that there are further rows at all adds
    `several_s` and `several_per_token_s` a token: other kernels, and masks.
    """

    base_s: Seconds = 0.0
    per_token_s: Seconds = 0.0
    per_context_token_s: Seconds = 0.0
    per_token_context_s: Seconds = 0.0
    per_row_s: Seconds = 0.0
    per_row_token_s: Seconds = 0.0
    per_row_context_s: Seconds = 0.0
    several_s: Seconds = 0.0
    several_per_token_s: Seconds = 0.0
    spread: Spread = Constant()

    def mean_s(self, tokens: float, context: float = 0.0, rows: int = 1, row_tokens: float = 0.0) -> float:
        """Mean time in seconds; `row_tokens`: tokens of all rows but the longest."""
        single_s = (
            self.base_s
            + self.per_token_s * tokens
            + self.per_context_token_s * context
            + self.per_token_context_s * tokens * context
        )
        return single_s + self.rows_s(tokens, context, rows, row_tokens)

    def rows_s(self, tokens: float, context: float, rows: int, row_tokens: float) -> float:
        """Return what the rows beyond the first add."""
        if rows == 1:
            return 0.0
        several_s = self.several_s + self.several_per_token_s * tokens
        rows_s = (self.per_row_s + self.per_row_context_s * context) * (rows - 1)
        return several_s + rows_s + self.per_row_token_s * row_tokens

    def slowed(self, factor: float) -> "StepTime":
        """Return the same step, `factor` times slower."""
        times_s = msgspec.structs.asdict(self)
        spread = times_s.pop("spread")
        return StepTime(**{name: factor * time_s for name, time_s in times_s.items()}, spread=spread)


class LinkTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way over a link: latency (with jitter as its spread) plus payload over bandwidth, which None leaves out."""

    latency_s: Seconds = 0.0
    bandwidth_bytes_per_s: Annotated[float, Meta(gt=0)] | None = None
    spread: Spread = Constant()

    def mean_s(self, payload_bytes: float) -> float:
        """Mean one-way time in seconds."""
        return self.latency_s + payload_bytes * self.s_per_byte

    @property
    def s_per_byte(self) -> float:
        """Time that each byte adds."""
        return 1 / self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0.0


class IdleEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a draft slows down after the drafter was idle: flat, rising, flat (StarSD, section 5.3 and figure 6b).

    `slowdowns[i]` multiplies the draft time after a gap of `gaps_s[i]`, linear in between, flat outside.
    `recoveries[w]` is the share of the excess that is left after w warm-up tokens (figure 6c), flat beyond the last.
    """

    gaps_s: tuple[float, ...] = (0.0,)
    slowdowns: tuple[float, ...] = (1.0,)
    recoveries: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if len(self.gaps_s) != len(self.slowdowns) or list(self.gaps_s) != sorted(self.gaps_s):
            raise ValueError("idle effect needs rising gaps_s and one slowdown for each")

    def slowdown(self, idle_gap_s: float, warm_tokens: int = 0) -> float:
        """Multiplier of the draft time after `idle_gap_s` of idleness and `warm_tokens` warm-up tokens."""
        slowdown = interpolated(idle_gap_s, self.gaps_s, self.slowdowns)
        if not warm_tokens:
            return slowdown
        return 1 + (slowdown - 1) * self.recoveries[min(warm_tokens, len(self.recoveries) - 1)]


class RecentLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a draft slows down while its device was little used of late: clocks and caches follow the load, not one gap.

    The recent load is the busy share of the past, weighted by an exponential memory with half-life `half_life_s`.
    `slowdowns[i]` multiplies the draft time at a recent load of `loads[i]`, linear in between, flat outside. `paces[i]`
    is the host's mean slowness at that load, apart from it: a shared host lends out cores that idle. Where a measured
    pace is played back (`pace.py`), that takes the place of `paces`.
    """

    half_life_s: Annotated[float, Meta(gt=0)]
    loads: tuple[float, ...]
    slowdowns: tuple[float, ...]
    paces: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.loads) != len(self.slowdowns) or not self.loads or list(self.loads) != sorted(self.loads):
            raise ValueError("recent load needs rising loads and one slowdown for each")
        if self.paces and len(self.paces) != len(self.loads):
            raise ValueError("recent load needs one pace for each load, or none")

    def after(self, load: float, time_s: float, busy: bool) -> float:
        """Return the recent load `time_s` later, if the device was busy, or idle, all that time."""
        kept = 2 ** (-time_s / self.half_life_s)
        return 1 - (1 - load) * kept if busy else load * kept

    def slowdown(self, load: float) -> float:
        """Multiplier of the draft time at a recent load, at the reference pace."""
        return interpolated(load, self.loads, self.slowdowns)

    def pace(self, load: float) -> float:
        """The host's mean slowness at a recent load."""
        return interpolated(load, self.loads, self.paces) if self.paces else 1.0


def interpolated(x: float, xs: tuple[float, ...], ys: tuple[float, ...]) -> float:
    """Piecewise linear interpolation, flat outside; `numpy.interp` for one number is ten times slower."""
    right = bisect.bisect_right(xs, x)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + share * (ys[right] - ys[right - 1])


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stations pay for taking turns on a device: each finds the caches full of the others' data.

    `slowdowns[step]` multiplies that step, named as the step times of a profile are; what is missing is not slowed.
    `handover_s` passes between the end of one step and the start of the next that was waiting. Contended stations pay
    the slowdowns too, beside the contention.
    """

    slowdowns: dict[str, Annotated[float, Meta(gt=0)]] = {}
    handover_s: Seconds = 0.0


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Electrical power of a device, in watts, by what it does."""

    idle_w: float
    draft_w: float
    verify_w: float


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


def describe(profile: HardwareProfile) -> list[tuple[str, str, str]]:
    """Rows for people: quantity, value with unit, and how well a fitted one fits (median relative error)."""
    rows = []
    batched = profile.measured.get("steps", {})
    for name in (*STEPS, "realign"):
        time: StepTime = getattr(profile, name)
        terms = [
            (time.base_s, ""), (time.per_token_s, " k"), (time.per_context_token_s, " n"),
            (time.per_token_context_s, " k n"), (time.per_row_s, " r"), (time.per_row_token_s, " m"),
            (time.per_row_context_s, " r n"), (time.several_s, " [r]"), (time.several_per_token_s, " [r] k"),
        ]  # fmt: skip
        formula = " + ".join(f"{1000 * value:.3g}{term}" for value, term in terms if value) or "0"
        error = _fit_errors(profile.measured.get(name, []))
        in_service = batched.get("prefill" if name == "verify_prefill" else name)
        if in_service is not None:
            error = f"{in_service['mean_absolute_error']:.1%} of {in_service['steps']} steps in service"
        if name != "realign" or formula != "0":
            symbols = (
                "k tokens, n context, r further rows of m tokens, [r] if any" if batched else "k tokens, n context"
            )
            rows.append((f"{name} ({symbols})", f"{formula} ms", error))
    bandwidth = profile.link.bandwidth_bytes_per_s
    a_row = f" + {1000 * profile.turnaround_row_s:.3g} r ms" if profile.turnaround_row_s else ""
    rate = f", {bandwidth / 1e6:.3g} MB/s" if bandwidth else ""
    rows += [
        ("turnaround", f"{1000 * profile.turnaround_s:.3g} ms{a_row}", ""),
        ("wake-up", f"{1000 * profile.wake_up_s:.3g} ms", ""),
        ("link, one way", f"{1000 * profile.link.latency_s:.3g} ms{rate}", ""),
    ]
    if profile.idle != IdleEffect():
        rows += [
            (f"draft after an idle gap of {1000 * gap_s:.3g} ms", f"x {slowdown:.3f}", "")
            for gap_s, slowdown in zip(profile.idle.gaps_s, profile.idle.slowdowns, strict=True)
        ]
    rows += [
        (f"excess left after {tokens} warm-up tokens", f"{left:.0%}", "")
        for tokens, left in enumerate(profile.idle.recoveries)
        if tokens
    ]
    if profile.recent_load is not None:
        half_life_ms = 1000 * profile.recent_load.half_life_s
        rows += [
            (f"draft at a recent load of {load:.0%} (half-life {half_life_ms:.0f} ms)", f"x {slowdown:.3f}", "")
            for load, slowdown in zip(profile.recent_load.loads, profile.recent_load.slowdowns, strict=True)
        ]
    if profile.control_s:
        rows.append(("control computation at the reference pace", f"{1e6 * profile.control_s:.1f} us", ""))
    shared = [(f"turns of a drafter and {_many(k, 'target')}", turns) for k, turns in enumerate(profile.turns, start=1)]
    for how, turns in [*shared, ("all stations in one process", profile.one_process)]:
        rows.append((f"{how}: handover", f"{1000 * turns.handover_s:.3g} ms", ""))
        rows += [(f"{how}: {step}", f"x {slowdown:.3f}", "") for step, slowdown in turns.slowdowns.items()]
    rows += [
        (f"contention, {_many(k, 'step')} at once", f"x {factor:.3f}", "")
        for k, factor in enumerate(profile.contention, start=1)
    ]
    return rows


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _fit_errors(table: list[dict[str, Any]]) -> str:
    """Median absolute relative error of fitted and of held-out grid points, each with its count."""
    texts = []
    for held_out in (False, True):
        errors = [abs(row["fitted_s"] / row["quantiles_s"][1] - 1) for row in table if row["held_out"] == held_out]
        texts.append(f"{np.median(errors):.1%} of {len(errors)}" if errors else "-")
    return " | ".join(texts) if table else ""
