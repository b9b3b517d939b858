"""SpecDecode-Bench, figure 1: speed-ups of Llama-3.1-8B that were measured with vLLM on an H100.

The engine's times are `specdecode_vllm.py`. Three numbers are fitted to InstructCoder's rows alone; the other sets'
rows are predicted, ShareGPT's without a number beside them.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, least_squares
from scipy.stats import t as student

from experiments.reproduce.rows import Inputs, Reproduction, Row, row, score_of
from experiments.reproduce.specdecode_data import METHODS, recordings
from experiments.reproduce.specdecode_printed import FIGURE_1, FIGURE_10, MEASURED_BATCHES
from experiments.reproduce.specdecode_simulated import BATCHES
from experiments.reproduce.specdecode_vllm import Answers, Engine, Fitted, Line, engine_of, host_lines, of_shares
from fleet.records.intervals import CONFIDENCE
from sim.lockstep import Floats

FITTED_SET = "InstructCoder"
DEPTH = 3  # of what ShareGPT is forecast for
START = Fitted(sharpness=1.5, pass_s=0.7e-3, matching=0.5)
LOWEST = Fitted(sharpness=1.0, pass_s=0.0, matching=0.0)
HIGHEST = Fitted(sharpness=20.0, pass_s=0.1, matching=1.25)  # of the authors' 0.8: certain
REQUESTS = 100  # of a set that were measured at each batch
RESAMPLES = 400
SEED = 1
SMALL = 0.01  # relative step of the derivatives

ASSUMED = [
    (
        "passes of target and head: rooflines of their shapes on an H100, whose efficiencies are Vidur's operators'; "
        "a pass up to 512 tokens is padded to the sizes that vLLM captures as graphs"
    ),
    "a draft is a pass of the head for each token, at least as long as the host takes to launch it",
    (
        "the host's time of a step: figure 4's shares of sampling and all else, beside its share of verification, "
        "which holds prefills. Each drafter's column at batch 1; what a row adds is plain decoding's. Lookups: their "
        "own share. These are shares of CNN runs; CNN's speed-ups are not used"
    ),
    "copies of a prompt run in lockstep: all of them find a draft in a round, or none does",
    ("lookups find something in vain less often than the authors' simulator has it, by one fitted factor for all sets"),
    "answers of 8192 tokens did not stop by themselves and are left out, as the figure does; all others count",
    (
        "which mechanisms are here was settled with all of the figure's rows in view; the three values are "
        "InstructCoder's alone"
    ),
    (
        "intervals (95 %): which 100 requests were measured is not known, so they are drawn anew; how well "
        "InstructCoder's rows tell what was fitted, and how far they scatter about it"
    ),
]


class Speed(NamedTuple):
    """Tokens a second of each request's group with a drafter, and without."""

    drafted: Floats
    plain: Floats

    def up(self) -> float:
        """Speed-up as figure 1 has it: the mean of one over the mean of the other."""
        return float(np.mean(self.drafted) / np.mean(self.plain))


class Case(NamedTuple):
    """A bar of figure 1."""

    name: str
    method: str
    depth: int
    batch: int

    def on(self, engine: Engine, answers: Answers) -> Speed:
        """Compute it."""
        arms = (self.method, "none")
        return Speed(*(engine.tokens_per_s(answers, arm, self.depth, self.batch) for arm in arms))


def specdecode_fig1(inputs: Inputs) -> Reproduction:
    """Figure 1: InstructCoder's rows fitted, GSM8K's and CNN's predicted, ShareGPT's forecast; `--data` as for fig10.

    Raises InputError without the recordings.
    """
    found = recordings(inputs, "specdecode-fig1")
    curves = [*FIGURE_1, *(("ShareGPT", method, DEPTH) for method in METHODS)]
    walked = {curve: Answers.of(found, *curve) for curve in curves}
    requests = of_shares(found)
    fitting = [curve for curve in FIGURE_1 if curve[0] == FITTED_SET]

    def residuals(values: Floats) -> list[float]:
        engine = engine_of(Fitted(*values), requests)
        return [
            Case(*curve, batch).on(engine, walked[curve]).up() / paper - 1
            for curve in fitting
            for batch, paper in zip(MEASURED_BATCHES, FIGURE_1[curve], strict=True)
        ]

    solved = least_squares(residuals, START, bounds=(LOWEST, HIGHEST), x_scale=START, diff_step=1e-3)
    fitted = Fitted(*solved.x.tolist())
    engine = engine_of(fitted, requests)
    nudged = [engine_of(Fitted(*values), requests) for values in _nudged(solved.x)]
    rows: list[Row] = []
    within: list[bool] = []
    for curve in curves:
        for batch, paper in zip(MEASURED_BATCHES, FIGURE_1.get(curve, (None,) * 4), strict=True):
            one = Case(*curve, batch)
            speed = one.on(engine, walked[curve])
            case = {"set": one.name, "drafter": one.method, "depth": one.depth, "B": batch}
            if one.name == FITTED_SET:
                rows.append(row("speed-up", case, "fitted", paper, speed.up()))
                continue
            moves = np.array([one.on(other, walked[curve]).up() - speed.up() for other in nudged])
            half = _half_width(speed, moves / SMALL, solved)
            low, high = speed.up() - half, speed.up() + half
            rows.append(
                row("speed-up", case | {"interval": f"{low:.3f} to {high:.3f}"}, "predicted", paper, speed.up())
            )
            within += [low <= paper <= high] if paper is not None else []
    parts = {method: score_of([one for one in rows if one.case["drafter"] == method]) for method in METHODS}
    constants = _constants(fitted, host_lines(engine))
    notes = [*ASSUMED, _fit_error(rows), f"{sum(within)} of {len(within)} predicted numbers lie in their interval"]
    return Reproduction("specdecode-fig1", [*constants, *rows], [*notes, _theirs()], parts=parts)


def _nudged(values: Floats) -> list[Floats]:
    """Return the fitted values with one of them larger by SMALL, each in turn."""
    return [values * np.where(np.arange(len(values)) == place, 1 + SMALL, 1.0) for place in range(len(values))]


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


def _constants(fitted: Fitted, hosts: dict[str, Line]) -> list[Row]:
    """Return what was fitted, and what figure 4 says with it."""
    case = {"on": FITTED_SET}
    rows = [
        row("sharpness of the target's roofline", case, "fitted", None, fitted.sharpness),
        row("a pass of the EAGLE-3 head, at least, ms", case, "fitted", None, 1000 * fitted.pass_s),
        row("factor of the authors' share of lookups in vain", case, "fitted", None, fitted.matching),
    ]
    for method, host in hosts.items():
        of_shares = {"from": "figure 4", "drafter": method}
        rows.append(row("host, a step, ms", of_shares, "input", None, 1000 * host.one_s))
        rows.append(row("host, a further row, us", of_shares, "input", None, 1e6 * host.further_s))
    return rows


def _fit_error(rows: list[Row]) -> str:
    errors = [abs(one.error) for one in rows if one.kind == "fitted" and one.error is not None]
    return f"fitted rows: mean absolute error {np.mean(errors):.1%}, worst {max(errors):.1%}"


def _theirs() -> str:
    """Say how far the authors' own simulator is off on the predicted rows."""
    places = [BATCHES.index(batch) for batch in MEASURED_BATCHES]
    errors = [
        abs(FIGURE_10[name, method][depth][place] / paper - 1)
        for (name, method, depth), printed in FIGURE_1.items()
        if name != FITTED_SET
        for place, paper in zip(places, printed, strict=True)
    ]
    return (
        f"the authors' simulator (figure 10) on the predicted rows: mean {np.mean(errors):.1%}, worst {max(errors):.1%}"
    )
