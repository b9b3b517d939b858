"""SpecDecode-Bench, figure 1: speed-ups of Llama-3.1-8B that were measured with vLLM on an H100.

vLLM's steps, mechanism by mechanism: passes are rooflines of the model's shape; what the host takes besides is put
together from figure 4's shares of time. Three numbers are fitted to InstructCoder's rows alone; the other sets' rows
are predicted, ShareGPT's without a number beside them.
"""

import bisect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.optimize import OptimizeResult, least_squares
from scipy.stats import t as student

from bench.harness import data_file, off_by
from bench.specdecode import (
    BATCHES,
    FIGURE_10,
    FILE,
    METHODS,
    PAPER,
    Floats,
    Recordings,
    Walks,
    prefills_s,
    read_recordings,
    rounds_s,
    walks_of,
)
from specfleet.experiments.reproduce.rows import PaperRow, Reproduction, row, score_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import roofline_of
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.records.metrics.intervals import CONFIDENCE
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.step_time import StepTime

DATA = (FILE,)
MEASURED_BATCHES = (1, 16, 64, 128)
FIGURE_1 = {
    (name, method, depth): speed_ups
    for name, methods in PAPER["figure_1"].items()
    for method, by_depth in methods.items()
    for depth, speed_ups in by_depth.items()
}
"""Speed-ups at MEASURED_BATCHES by set, drafter and depth."""
SHARES = PAPER["figure_4"]
DRAFTING, VERIFICATION, SAMPLING, ELSE = range(4)  # columns of figure 4
SHARES_SET, SHARES_DEPTH = "CNN", 3  # of figure 4's runs
CAPTURED = (1, 2, 4, *range(8, 513, 8))  # tokens of the passes that vLLM captures as graphs, its default
LONGEST = 8192  # tokens: answers that got there did not stop by themselves, and are not in the figure
FITTED_SET = "InstructCoder"
FORECAST = "ShareGPT", 3  # set and depth


class Fitted(NamedTuple):
    """What is fitted to InstructCoder's rows of figure 1.

    `sharpness`: of the target's roofline, see `Roofline`. `pass_s`: least time of a pass of the EAGLE-3 head, which the
    host launches. `matching`: factor of the authors' share of lookups that find something where nothing is accepted.
    """

    sharpness: float
    pass_s: float
    matching: float


class Walked(NamedTuple):
    """Walks over the texts of a set, with drafts of a depth; plain decoding's is 0.

    `matching`: the authors' share of lookups that find something where nothing is accepted; None without lookups.
    """

    walks: Walks
    depth: int = 0
    matching: float | None = None

    def rounds_s(self, profile: HardwareProfile, batch: int, factor: float) -> Floats:
        """Return the time of each round, where all copies find a draft or none does; `factor`: of `matching`."""
        drafted = np.full(len(self.walks.context), float(self.depth))
        found_s = rounds_s(profile, self.walks.context, drafted, batch)
        if self.matching is None:
            return found_s
        nothing_s = rounds_s(profile, self.walks.context, np.zeros_like(drafted), batch)
        likely = np.where(self.walks.accepted > 0, 1.0, factor * self.matching)
        return likely * found_s + (1 - likely) * nothing_s


def walked(recordings: Recordings, name: str, method: str, depth: int) -> tuple[Walked, Walked]:
    """Walk over the texts that ended by themselves, with drafts and without; InputError where none ended so."""
    recorded = recordings[name, method]
    ended = recorded.only([number for number, text in enumerate(recorded.texts) if len(text) + 1 < LONGEST])
    if not ended.texts:
        raise InputError(f"--data: every answer of {name} by {method} has {LONGEST} tokens; needs one that is shorter")
    drafting, plain = (walks_of(ended.texts, ended.prompts, drafted) for drafted in (depth, 0))
    return Walked(drafting, depth, None if method == "EAGLE-3" else PAPER["matching"][name]), Walked(plain)


class Speed(NamedTuple):
    """Tokens a second of each request's group with a drafter, and without."""

    drafted: Floats
    plain: Floats

    def up(self) -> float:
        """Speed-up as figure 1 has it: the mean of one over the mean of the other."""
        return float(np.mean(self.drafted) / np.mean(self.plain))


class Arms(NamedTuple):
    """The step times of each arm, by its drafter: "none", "n-gram", "EAGLE-3"; and the fitted factor of `matching`."""

    profiles: dict[str, HardwareProfile]
    matching: float

    def speed(self, answers: tuple[Walked, Walked], method: str, batch: int) -> Speed:
        """Compute a bar of figure 1: tokens a second for each copy of a group, with the drafter and without."""
        return Speed(
            *(self._tokens_per_s(each, arm, batch) for each, arm in zip(answers, (method, "none"), strict=True))
        )

    def _tokens_per_s(self, answers: Walked, arm: str, batch: int) -> Floats:
        walks, profile = answers.walks, self.profiles[arm]
        round_s = answers.rounds_s(profile, batch, self.matching)
        return walks.answers / (prefills_s(profile, walks.prompts, batch) + walks.of_requests(round_s))


def of_shares(recordings: Recordings) -> dict[str, Walked]:
    """Return the requests behind figure 4's shares, by drafter; plain decoding's are those of the lookups."""
    pairs = {method: walked(recordings, SHARES_SET, method, SHARES_DEPTH) for method in METHODS}
    return {"none": pairs["n-gram"][1]} | {method: drafting for method, (drafting, _) in pairs.items()}


def engine_of(fitted: Fitted, requests: dict[str, Walked]) -> Arms:
    """Return the engine's times; the host's follow from figure 4's shares and the passes of its requests.

    Plain decoding's columns say what each row adds; the columns at batch 1 what a step takes with each drafter.
    """
    replace = msgspec.structs.replace
    passes = _passes_of(fitted)
    pass_s = {method: _pass_s(profile, requests[method], fitted, SHARES[method]) for method, profile in passes.items()}
    _, further_s = _line(_beside("none", pass_s["none"], SAMPLING, ELSE))
    profiles = {}
    for method, profile in passes.items():
        host = {"base_s": _beside(method, pass_s[method], SAMPLING, ELSE)[1], "per_row_s": further_s}
        draft = profile.draft
        if method == "n-gram":
            lookup_s, further_lookup_s = _line(_beside(method, pass_s[method], DRAFTING))
            draft = StepTime(base_s=lookup_s, per_row_s=further_lookup_s)
        verify, verify_prefill = (replace(step, **host) for step in (profile.verify, profile.verify_prefill))
        profiles[method] = replace(profile, draft=draft, verify=verify, verify_prefill=verify_prefill)
    return Arms(profiles, fitted.matching)


def padded(roofline: Roofline, sizes: Sequence[int]) -> Roofline:
    """Return the same passes, each padded to the next of these rising sizes, for which graphs were captured.

    Attention ignores the padding; passes beyond the last size are unchanged.
    """
    starts = [1, *(size + 1 for size in sizes[:-1])]
    edges = sorted({edge for pair in zip(starts, sizes, strict=True) for edge in pair})
    within = {edge: roofline.products_s(sizes[bisect.bisect_left(sizes, edge)]) for edge in edges}
    beyond = {fed: roofline.products_s(fed) for fed in (sizes[-1] + 1, *roofline.tokens) if fed > sizes[-1]}
    pass_s = within | dict(sorted(beyond.items()))
    return msgspec.structs.replace(roofline, tokens=tuple(pass_s), pass_s=tuple(pass_s.values()))


def _passes_of(fitted: Fitted) -> dict[str, HardwareProfile]:
    """Return the passes of each arm alone, as rooflines; only the target's sharpness is not the shipped device's."""
    replace = msgspec.structs.replace
    target, head = placed_of("llama-3.1-8b@h100"), placed_of("eagle3-llama-3.1-8b@h100")
    source = "fitted: figure 1, InstructCoder"
    sharpness = replace(target.device.sharpness, value=fitted.sharpness, source=source)
    sharp = replace(target, device=replace(target.device, sharpness=sharpness))
    verify = StepTime(roofline=padded(roofline_of(sharp), CAPTURED))
    verify_prefill = StepTime(roofline=roofline_of(sharp, every_logit=False))
    rooflines = roofline_of(head, in_turn=True), roofline_of(head, every_logit=False)
    draft, draft_prefill = (StepTime(roofline=replace(roofline, host_s=fitted.pass_s)) for roofline in rooflines)
    arms = {method: HardwareProfile(f"vllm, {method}", StepTime(), verify, verify_prefill=verify_prefill)
            for method in SHARES}  # fmt: skip
    return arms | {"EAGLE-3": replace(arms["EAGLE-3"], draft=draft, draft_prefill=draft_prefill)}


def _pass_s(bare: HardwareProfile, answers: Walked, fitted: Fitted, batches: Iterable[int]) -> dict[int, float]:
    """Return the mean time of the target's pass in a step, by batch, over prefills and rounds."""
    passes = msgspec.structs.replace(bare, draft=StepTime(), draft_prefill=StepTime())
    prompts = answers.walks.prompts
    steps = len(answers.walks.context) + len(prompts)
    return {
        batch: float(
            np.sum(prefills_s(passes, prompts, batch)) + np.sum(answers.rounds_s(passes, batch, fitted.matching))
        ) / steps
        for batch in batches
    }  # fmt: skip


def _beside(method: str, pass_s: dict[int, float], *columns: int) -> dict[int, float]:
    """Return the seconds of a step, by batch, that some columns of figure 4 have beside the passes' share."""
    return {
        batch: sum(shares[column] for column in columns) / shares[VERIFICATION] * pass_s[batch]
        for batch, shares in SHARES[method].items()
    }


def _line(by_batch: dict[int, float]) -> tuple[float, float]:
    """Lay a line through times by batch, with the least relative error: the time of one row, and of a further one."""
    further = np.array(list(by_batch), dtype=np.float64) - 1
    times_s: Floats = np.array(list(by_batch.values()))
    slope, one_s = np.polyfit(further, times_s, 1, w=1 / times_s)
    return float(one_s), max(float(slope), 0.0)


START = Fitted(sharpness=1.5, pass_s=0.7e-3, matching=0.5)
LOWEST = Fitted(sharpness=1.0, pass_s=0.0, matching=0.0)
HIGHEST = Fitted(sharpness=20.0, pass_s=0.1, matching=1.25)  # of the authors' 0.8: certain
REQUESTS = 100  # of a set that were measured at each batch
RESAMPLES = 400
SEED = 1
SMALL = 0.01  # relative step of the derivatives


def reproduce(folder: Path | None) -> Reproduction:
    """Fit InstructCoder's rows, predict GSM8K's and CNN's, and forecast ShareGPT's."""
    return specdecode_fig1(read_recordings(data_file(folder, FILE)))


def specdecode_fig1(recordings: Recordings) -> Reproduction:
    """Make the rows, with intervals of those that are predicted."""
    name, depth = FORECAST
    curves = [*FIGURE_1, *((name, method, depth) for method in METHODS)]
    answers = {curve: walked(recordings, *curve) for curve in curves}
    requests = of_shares(recordings)
    fitting = [curve for curve in FIGURE_1 if curve[0] == FITTED_SET]

    def residuals(values: Floats) -> list[float]:
        engine = engine_of(Fitted(*values), requests)
        return [
            engine.speed(answers[curve], curve[1], batch).up() / paper - 1
            for curve in fitting
            for batch, paper in zip(MEASURED_BATCHES, FIGURE_1[curve], strict=True)
        ]

    solved = least_squares(residuals, START, bounds=(LOWEST, HIGHEST), x_scale=START, diff_step=1e-3)
    fitted = Fitted(*solved.x.tolist())
    engine = engine_of(fitted, requests)
    larger = solved.x * (1 + SMALL * np.eye(len(solved.x)))  # by SMALL, each of the values in turn
    nudged = [engine_of(Fitted(*values), requests) for values in larger]
    rows: list[PaperRow] = []
    within: list[bool] = []
    for curve in curves:
        for batch, paper in zip(MEASURED_BATCHES, FIGURE_1.get(curve, (None,) * 4), strict=True):
            name, method, depth = curve
            speed = engine.speed(answers[curve], method, batch)
            case = {"set": name, "drafter": method, "depth": depth, "B": batch}
            if name == FITTED_SET:
                rows.append(row("speed-up", case, "fitted", paper, speed.up()))
                continue
            others = [other.speed(answers[curve], method, batch).up() for other in nudged]
            half = _half_width(speed, (np.array(others) - speed.up()) / SMALL, solved)
            low, high = speed.up() - half, speed.up() + half
            case["interval"] = f"{low:.3f} to {high:.3f}"
            rows.append(row("speed-up", case, "predicted", paper, speed.up()))
            within += [low <= paper <= high] if paper is not None else []
    parts = {method: score_of([made for made in rows if made.case["drafter"] == method]) for method in METHODS}
    constants = _constants(fitted, engine)
    off = off_by(made.error for made in rows if made.kind == "fitted")
    lie = f"{sum(within)} of {len(within)} predicted numbers lie in their interval"
    notes = [*PAPER.assumed("specdecode-fig1"), f"fitted rows: {off}", lie, _theirs()]
    return Reproduction("specdecode-fig1", [*constants, *rows], notes, parts=parts)


def _half_width(speed: Speed, slopes: Floats, solved: OptimizeResult) -> float:
    """Return half the interval of a measured speed-up: of the requests that were drawn, of the fit, and of its scatter.

    `slopes`: by what the speed-up grows when a fitted value doubles.
    """
    degrees = len(solved.fun) - len(solved.x)
    scatter = 2 * solved.cost / degrees  # of relative errors
    relative = solved.jac * solved.x
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(len(speed.plain), size=(RESAMPLES, REQUESTS))
    ups = speed.drafted[drawn].mean(axis=1) / speed.plain[drawn].mean(axis=1)
    of_fit = scatter * max(float(slopes @ np.linalg.pinv(relative.T @ relative) @ slopes), 0.0)
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, degrees))
    return quantile * float(np.sqrt(ups.var(ddof=1) + of_fit + scatter * speed.up() ** 2))


def _constants(fitted: Fitted, engine: Arms) -> list[PaperRow]:
    """Return what was fitted, and what figure 4 says with it."""
    case = {"on": FITTED_SET}
    rows = [
        row("sharpness of the target's roofline", case, "fitted", None, fitted.sharpness),
        row("a pass of the EAGLE-3 head, at least, ms", case, "fitted", None, 1000 * fitted.pass_s),
        row("factor of the authors' share of lookups in vain", case, "fitted", None, fitted.matching),
    ]
    for method, profile in engine.profiles.items():
        of_shares, host = {"from": "figure 4", "drafter": method}, profile.verify
        rows.append(row("host, a step, ms", of_shares, "input", None, 1000 * host.base_s))
        rows.append(row("host, a further row, us", of_shares, "input", None, 1e6 * host.per_row_s))
    return rows


def _theirs() -> str:
    """Say how far the authors' own simulator is off on the predicted rows."""
    places = [BATCHES.index(batch) for batch in MEASURED_BATCHES]
    errors = [
        abs(FIGURE_10[curve][place] / paper - 1)
        for curve, printed in FIGURE_1.items()
        if curve[0] != FITTED_SET
        for place, paper in zip(places, printed, strict=True)
    ]
    return (
        f"the authors' simulator (figure 10) on the predicted rows: mean {np.mean(errors):.1%}, worst {max(errors):.1%}"
    )
