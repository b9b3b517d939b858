"""GoodSpeed, figures 2 to 4: estimated goodput, where the time of a round goes, and the utility over the iterations.

The figures print no numbers but those of the text, and neither times nor acceptance rates of the testbed are given.
What is assumed instead is below, set once from public knowledge of the models, before any policy ran.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from specfleet.experiments.reproduce.rows import Paper, PaperRow, claim, fitted_if, reproduces, row
from specfleet.experiments.reproduce.runs import root, simulated
from specfleet.fleet.policies.goodspeed import FIRST_GOODPUT, best_goodput, utility
from specfleet.fleet.records.metrics.tables import verifications_of
from specfleet.fleet.records.run import Run

PAPER = Paper("goodspeed")
SETUPS, OVER_FIXED, DOMAINS, FAMILIES = (PAPER[name] for name in ("setups", "over_fixed", "domains", "families"))
BETA, ETA = 0.5, 0.1  # beta is that of section IV-B3; eta is not printed
ITERATIONS = 600
SEEDS = 3
WINDOW = 10  # of the moving averages in figure 2
STABLE_FROM = 400  # iteration of figure 4
RULES: dict[str, dict[str, Any]] = {
    "GoodSpeed": {"policy": "goodspeed", "beta": BETA, "eta": ETA},
    "Fixed-S": {"policy": "fixed-share"},
    "Random-S": {"policy": "random-share"},
}


def run_rule(rule: str, clients: int, budget: int, family: str = "Qwen3", seed: int = 0) -> Run:
    """Simulate the testbed under a rule; prompts last for all iterations, at up to 5 to 7 tokens a round."""
    models, new_tokens = FAMILIES[family], SETUPS[clients]["new_tokens"]
    (small_s, large_s), (verify_s, token_s) = models["draft_s"], models["verify_s"]
    larger = [{"first": clients // 2 + 1, "step": {"per_token_s": large_s}}] if clients == 8 else []
    requests = clients * (ITERATIONS * {4: 8, 8: 6}[clients] // new_tokens + 2)
    return simulated(
        name="goodspeed", seed=seed,
        profile={
            "name": f"goodspeed-{family}", "vocabulary": models["vocabulary"],
            "draft": {"per_token_s": small_s}, "draft_prefill": {"base_s": 0.03},
            "verify": {"base_s": verify_s, "per_token_s": token_s, "per_row_token_s": token_s},
            "verify_prefill": {"base_s": 0.04}, "link": {"latency_s": 0.005, "bandwidth_bytes_per_s": 1.25e8},
        },
        drafters={"count": clients, "tiers": larger},
        verifiers={"count": 1, "late": "wait", "allocate": RULES[rule] | {"budget": budget}},
        acceptance={"model": "ratios", "switch": 0.3, "clients": [list(client) for client in DOMAINS[clients]]},
        workload={"requests": requests, "temperature": 1.0, "prompt_tokens": 100, "new_tokens": new_tokens},
    )  # fmt: skip


def goodputs(run: Run, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x_i(t) and the rule's X_i(t) of the first iterations of all clients, each (iterations, clients)."""
    x = goodputs_of(run, clients)
    estimates, complete = smoothed(x, BETA, FIRST_GOODPUT), x.notna().all(axis=1)
    assert complete.sum() >= ITERATIONS, f"{complete.sum()} iterations of {ITERATIONS}"
    return x[complete][:ITERATIONS].to_numpy(), estimates[complete][:ITERATIONS].to_numpy()


def goodputs_of(run: Run, clients: int) -> pd.DataFrame:
    """x_i(t): tokens of client i in step t of the verifier; NaN where the client took no part."""
    verified = verifications_of(run.columns()).frame()
    return verified.pivot(index="step", columns="tag", values="acceptance_length").reindex(columns=range(clients)) + 1


def smoothed(goodputs: pd.DataFrame, beta: float, start: float) -> pd.DataFrame:
    """X_i(t) by equation (4), from the goodputs of a run; clients without a part keep X."""
    first = pd.DataFrame(start, index=[-1], columns=goodputs.columns)
    return pd.concat([first, goodputs]).ewm(alpha=beta, adjust=False, ignore_na=True).mean()[1:]


@reproduces(PAPER)
def goodspeed_fig2() -> Iterator[PaperRow]:
    """Figure 2: the estimated goodput of equation (4) against the real one, both as moving averages, 8 clients."""
    for budget in SETUPS[8]["budgets"]:
        x, X = goodputs(run_rule("GoodSpeed", 8, budget), 8)
        estimated, real = X.sum(axis=1), x.sum(axis=1)
        bands = {name: pd.Series(values).rolling(WINDOW) for name, values in (("estimated", estimated), ("real", real))}
        means = {name: band.mean().dropna().to_numpy() for name, band in bands.items()}
        spread = bands["estimated"].std().dropna().to_numpy()
        middle = means["real"][1:-1]
        peaks = 1 + np.flatnonzero((middle > means["real"][:-2]) & (middle > means["real"][2:]))
        inside = np.abs(means["real"] - means["estimated"])[peaks] <= spread[peaks]
        case = {"clients": 8, "C": budget}
        over = float(means["estimated"].mean() / means["real"].mean())
        yield row("estimated over real goodput, mean", case, "identity", 1.0, over)
        yield claim("most peaks lie in the estimate's band", case, inside.mean() > 0.5)
        yield row("share of peaks in the band", case, "predicted", None, float(inside.mean()))


def times_of(run: Run) -> pd.Series:
    """Return receiving and verification times of the first iterations, in seconds a committed token.

    The server receives whenever it does nothing else; the prefill of new prompts is counted there, too. `iterations`:
    how many there are for a committed token.
    """
    frame = run.frame()
    verified = verifications_of(run.columns())
    last = np.unique(verified.step)[ITERATIONS - 1]
    verified = verified.where(verified.step <= last)
    steps = frame[(frame.event == "done") & (frame.kind == "verify") & (frame.step <= last)].drop_duplicates("step")
    ended_s, verify_s = float(steps.time_s.max()), float(steps.duration_s.sum())
    parts = {"receive": ended_s - verify_s, "verify": verify_s, "iterations": ITERATIONS}
    return pd.Series(parts) / float((verified.acceptance_length + 1).sum())


def total_s(parts: pd.Series, fixed_s: float) -> float:
    """Return the time of a committed token, with a fixed part in every iteration."""
    return float(parts["receive"] + parts["verify"] + fixed_s * parts["iterations"])


def over_fixed(parts: Mapping[str, pd.Series], fixed_s: float) -> dict[tuple[str, str], float]:
    """Return what figure 3's text says of a family, by quantity and rule; `parts`: `times_of` each rule."""
    fixed = parts["Fixed-S"]
    times = {
        ("time over Fixed-S", rule): total_s(parts[rule], fixed_s) / total_s(fixed, fixed_s)
        for rule in ("Random-S", "GoodSpeed")
    }
    return times | {("verification over Fixed-S", "GoodSpeed"): parts["GoodSpeed"]["verify"] / fixed["verify"]}


def fixed_part_s(families: Sequence[Mapping[str, pd.Series]], paper: float) -> float:
    """Return what every iteration waits for beside drafts and verification, in seconds, by Random-S's time.

    The rules differ by how long the slowest draft is; the more else an iteration holds, the less they differ. What
    that is (serving, serialising of distributions, the network) the paper does not print, and none is assumed.
    """

    def surplus(fixed_s: float) -> float:
        ours = [over_fixed(parts, fixed_s)["time over Fixed-S", "Random-S"] for parts in families]
        return float(np.mean(ours)) - paper

    return root(surplus, 0.0, 10.0)


@reproduces(PAPER)
def goodspeed_fig3() -> Iterator[PaperRow]:
    """Figure 3: wall time by part, a committed token, under three rules with 8 clients."""
    budget = SETUPS[8]["budgets"][1]

    def mean_times(family: str, rule: str) -> pd.Series:
        return pd.DataFrame([times_of(run_rule(rule, 8, budget, family, seed)) for seed in range(SEEDS)]).mean()

    families = {family: {rule: mean_times(family, rule) for rule in RULES} for family in FAMILIES}
    fixed_s = fixed_part_s(list(families.values()), OVER_FIXED["time over Fixed-S"]["Random-S"])
    yield row("fixed part of an iteration, s", {"models": "both"}, "fitted", None, fixed_s)
    ratios = {family: over_fixed(parts, fixed_s) for family, parts in families.items()}
    for family, parts in families.items():
        case: dict[str, Any] = {"models": family, "C": budget}
        for rule, part in parts.items():
            whole_s = total_s(part, fixed_s)
            receive_s = part["receive"] + fixed_s * part["iterations"]
            where = case | {"rule": rule}
            yield row("receive, share of time", where, "predicted", None, receive_s / whole_s)
            yield row("verify, share of time", where, "predicted", None, part["verify"] / whole_s)
        for (quantity, rule), ours in ratios[family].items():
            yield row(quantity, case | {"rule": rule}, "predicted", None, ours)
    for quantity, by_rule in OVER_FIXED.items():
        for rule, paper in by_rule.items():
            ours = float(np.mean([of_family[quantity, rule] for of_family in ratios.values()]))
            case = {"models": "mean", "C": budget, "rule": rule}
            yield row(quantity, case, fitted_if(rule == "Random-S"), paper, ours)


@reproduces(PAPER)
def goodspeed_fig4() -> Iterator[PaperRow]:
    """Figure 4: utility of the empirical mean goodput over 600 iterations, 4 and 8 clients."""
    for clients, setup in SETUPS.items():
        for budget in setup["budgets"]:
            case: dict[str, Any] = {"clients": clients, "C": budget}
            paths: dict[str, np.ndarray] = {}  # at the start, at iteration 400 and at the end, by seed
            for rule in RULES:
                runs = [run_rule(rule, clients, budget, seed=seed) for seed in range(SEEDS)]
                x = [goodputs(run, clients)[0] for run in runs]
                places = (WINDOW, STABLE_FROM, ITERATIONS)
                paths[rule] = np.array([[utility(of_run[:T].mean(axis=0)) for of_run in x] for T in places])
                ours = float(paths[rule][-1].mean())
                yield row(f"utility at iteration {ITERATIONS}", case | {"rule": rule}, "predicted", None, ours)
            alphas = [float(np.mean(domains)) for domains in DOMAINS[clients]]
            best = utility(best_goodput(alphas, budget))
            yield row("U(x*) of the mean acceptance rates", case, "identity", None, best)
            start, middle, end = paths["GoodSpeed"]
            for other in ("Fixed-S", "Random-S"):
                yield claim(f"GoodSpeed is above {other} in every seed", case, (end > paths[other][-1]).all())
                yield claim(f"GoodSpeed starts below {other}", case, start.mean() < paths[other][0].mean())
            moved = np.abs(end - middle).max() / clients
            yield row(f"largest move of U / N after iteration {STABLE_FROM}", case, "predicted", None, moved)
