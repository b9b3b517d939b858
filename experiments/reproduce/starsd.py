"""StarSD: table 1 (rounds a second, waits, idle gaps and load against N), table 2, figure 4 and figure 6.

The paper prints neither the depth nor t_c and t_v. What it prints is enough to know S = load / R_q in each column. The
return times follow from the columns that are under-loaded or, for the remote targets, from the one at N = 6, and how
much they vary from the wait at N = 2; all else is left to the simulation. Where S is that of a row's own column, its
R_q and load are in its input and do not count.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specfleet.experiments.reproduce.rows import Kind, Paper, PaperRow, reproduces, row
from specfleet.experiments.reproduce.runs import root
from specfleet.fleet.acceptance.models import rate_of_mean
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import read_profile
from specfleet.sim.run import simulate

PAPER = Paper("starsd")
TABLE_1, TABLE_2, EAGLE = (PAPER[name] for name in ("table_1", "table_2", "eagle"))
COLUMNS = (1, 2, 3, 4, 5, 6)  # N
NEW_TOKENS = 6000
LOCAL = 3  # targets on the drafter's server; those beyond are remote A100s (section 5.2)


def printed(quantity: str, N: int) -> float:
    """Return a number of table 1."""
    return float(TABLE_1[quantity][N - 1])


def service_s(N: int) -> float:
    """S of a column: load / R_q, since the drafter's busy share is its rate times its service time."""
    return printed("load", N) / printed("rounds_per_s", N)


def blind_service_s(N: int) -> float:
    """S of a column as known from N <= 3: beyond, that of N = 3 by the time of a token, which the paper prints."""
    return service_s(N) if N <= LOCAL else service_s(LOCAL) * draft_token_ms(N) / draft_token_ms(LOCAL)


def draft_token_ms(N: int) -> float:
    """t_s of a column."""
    return printed("draft_token_ms", N)


def local_return_s() -> float:
    """One local Z from N <= 3, all under-loaded: the mean of N / R_q - S - wait, for a round is S, a wait and Z."""
    returns_s = (N / printed("rounds_per_s", N) - service_s(N) - printed("wait_s", N) for N in COLUMNS[:LOCAL])
    return float(np.mean(list(returns_s)))


def remote_return_s(local_s: float, N: int = 6) -> float:
    """One remote Z from a column beyond N = 3: with the wait printed there, each target's cycle is S + Z_i + T_wait."""
    common_s = service_s(N) + printed("wait_s", N)

    def surplus(remote_s: float) -> float:
        per_s = LOCAL / (common_s + local_s) + (N - LOCAL) / (common_s + remote_s)
        return per_s - printed("rounds_per_s", N)

    return root(surplus, 0.001, 1.0)


def return_variation(local_s: float) -> float:
    """Standard deviation of a return time over its mean, by the wait that the paper prints for N = 2."""

    def surplus_s(variation: float) -> float:
        run = simulate(star(2, service_s(2), local_s, local_s, variation))
        return measure(run)["wait_s"].value - printed("wait_s", 2)

    return root(surplus_s, 0.0, 0.5, 1e-3)  # of a uniform spread whose shortest return is still longer than nothing


def uniformly(variation: float) -> dict[str, Any]:
    """Uniform spread with a standard deviation, over the mean."""
    half_width = math.sqrt(3) * variation
    return {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [1 - half_width, 1 + half_width]}


def star(N: int, S_s: float, local_s: float, remote_s: float, variation: float) -> Scenario:
    """The paper's fleet with N targets; long requests and no prefill, as table 1 is steady. `variation`: of returns."""
    returns, of_table_2 = uniformly(variation), min(N, LOCAL) - 1
    of_drafts = math.sqrt(TABLE_2["variance_ms2"][of_table_2]) / TABLE_2["mean_ms"][of_table_2]
    remote = [{"first": LOCAL + 1, "step": {"base_s": remote_s, "spread": returns}}]
    draft, verify = {"base_s": S_s, "spread": uniformly(of_drafts)}, {"base_s": local_s, "spread": returns}
    return make_scenario({
        "name": "starsd-table1", "profile": {"name": "starsd-table1", "draft": draft, "verify": verify},
        "acceptance": {"model": "geometric", "beta": 0.75},
        "drafters": {"depth": 5}, "verifiers": {"count": N, "tiers": remote},
        "workload": {"requests": N, "prompt_tokens": 10, "new_tokens": NEW_TOKENS},
    })  # fmt: skip


def kind_of(quantity: str, N: int, own_S: Sequence[int], own_Z: Sequence[int]) -> Kind:
    """Say what kind of number a quantity of column N is; `own_S`, `own_Z`: columns that gave their S, a return time.

    The gap before a request is (1 - load) / R_q in the simulation: nothing new where R_q and load count already, or
    where S and Z are the column's own. Where S is not, load (S R_q) and wait (N / R_q - S - Z) follow from R_q.
    """
    if quantity == "rounds_per_s_per_target" or (quantity == "wait_s" and N == 1):
        return "identity"  # R_q / N; and no other target asks
    if quantity == "idle_gap_s":
        return "predicted" if N in own_S and N not in own_Z else "identity"
    is_new = quantity == ("wait_s" if N in own_S else "rounds_per_s")
    is_fitted = N in (own_Z if quantity == "wait_s" else own_S)  # a return is what S and the wait leave
    return "fitted" if is_fitted else "predicted" if is_new else "identity"


def table_1_rows(
    services_s: Callable[[int], float], remote_s: float | None, own_S: Sequence[int], own_Z: Sequence[int]
) -> Iterator[PaperRow]:
    """Simulate each column with one local return time, and `remote_s` or the same for remote targets.

    `services_s`: S of a column; `own_S`, `own_Z` as in `kind_of`. Fitted times come first, the paper's own numbers
    against each other last.
    """
    local_s = local_return_s()
    variation = return_variation(local_s)
    yield row("return_s, local", {"N": "1..3"}, "fitted", None, local_s)
    if remote_s is not None:
        yield row("return_s, remote", {"N": 6}, "fitted", None, remote_s)
    yield row("standard deviation of a return over its mean", {"N": 2}, "fitted", None, variation)
    for N in COLUMNS:
        metrics = measure(simulate(star(N, services_s(N), local_s, remote_s or local_s, variation)))
        # What a wait and a gap are parts of, in seconds: a target's round, and the time between two requests.
        wholes_s = {"wait_s": N / printed("rounds_per_s", N), "idle_gap_s": 1 / printed("rounds_per_s", N)}
        for quantity in ("rounds_per_s", "rounds_per_s_per_target", "load", "wait_s", "idle_gap_s"):
            kind, ours = kind_of(quantity, N, own_S, own_Z), metrics[quantity].value
            yield row(quantity, {"N": N}, kind, printed(quantity, N), ours, part_of=wholes_s.get(quantity))
    for N in COLUMNS:  # O is not N O_i, while R_q is N R_p
        case = {"N": N, "source": "the paper's own columns"}
        for title, whole, part in (
            ("O against N O_i", "throughput", "throughput_per_target"),
            ("R_q against N R_p", "rounds_per_s", "rounds_per_s_per_target"),
        ):
            yield row(title, case, "identity", printed(whole, N), N * printed(part, N))
    case = {"N": 1, "source": "the paper's own column of EAGLE"}
    yield row("O against N O_i", case, "identity", EAGLE["throughput"], EAGLE["throughput_per_target"])


@reproduces(PAPER)
def starsd_table1() -> Iterator[PaperRow]:
    """Table 1 with S of each column, one local Z from N <= 3 and one remote Z from N = 6."""
    yield from (row("service_s", {"N": N}, "input", service_s(N), service_s(N)) for N in COLUMNS)
    yield from table_1_rows(service_s, remote_return_s(local_return_s()), COLUMNS, (1, 2, 3, 6))


@reproduces(PAPER)
def starsd_table1_blind() -> Iterator[PaperRow]:
    """Table 1 from N <= 3 and the times of a token alone, and remote targets taken to be like local ones."""
    yield from (row("service_s", {"N": N}, "input", service_s(N), service_s(N)) for N in COLUMNS[:LOCAL])
    for N in COLUMNS[LOCAL - 1 :]:
        yield row("t_s, ms", {"N": N}, "input", draft_token_ms(N), draft_token_ms(N))
    yield from table_1_rows(blind_service_s, None, (1, 2, 3), (1, 2, 3))


@reproduces(PAPER)
def added_starsd() -> Iterator[PaperRow]:
    """Table 1's throughput O beyond N = 3, from N <= 3 and the times of a token alone."""
    local_s = local_return_s()
    variation = return_variation(local_s)
    tokens = float(np.mean([printed("throughput", N) / printed("rounds_per_s", N) for N in COLUMNS[:LOCAL]]))
    yield row("tokens a round", {"N": "1..3"}, "fitted", None, tokens)
    for N in COLUMNS[LOCAL:]:
        run = simulate(star(N, blind_service_s(N), local_s, local_s, variation))
        ours = tokens * measure(run)["rounds_per_s"].value
        yield row("throughput, tokens/s", {"N": N}, "predicted", printed("throughput", N), ours)


@reproduces(PAPER)
def starsd_table2() -> Iterator[PaperRow]:
    """Table 2 against table 1: t_s's slowdown after a gap on the draft time of N = 2; what d may be; no simulation."""
    at_1_ms, at_2_ms, at_3_ms = TABLE_2["mean_ms"]
    yield row("draft time, ms", {"N": 2}, "input", at_2_ms, at_2_ms)
    for N, paper_ms in ((1, at_1_ms), (3, at_3_ms)):
        ours_ms = at_2_ms * draft_token_ms(N) / draft_token_ms(2)
        case = {"N": N, "gap_ms": round(1000 * printed("idle_gap_s", N), 1)}
        yield row("draft time, ms", case, "identity", paper_ms, ours_ms)
    of_S = [("S / t_s, the d of equation (5)", N, 1000 * service_s(N)) for N in COLUMNS]
    for quantity, N, ms in (*of_S, *(("draft time / t_s", N, ms) for N, ms in enumerate(TABLE_2["mean_ms"], 1))):
        yield row(quantity, {"N": N}, "identity", None, ms / draft_token_ms(N))
    for d, of in PAPER["depths"].items():
        case, left_ms = {"N": LOCAL, "d": d, "of": of}, 1000 * service_s(LOCAL) - d * draft_token_ms(LOCAL)
        yield row("base: S less d t_s, ms", case, "identity", None, left_ms)
        for tokens in (EAGLE["throughput"] / EAGLE["rounds_per_s"] + bonus for bonus in (0, 1)):
            yield row("beta", case | {"tokens": round(tokens, 2)}, "identity", None, rate_of_mean(tokens, d))


@reproduces(PAPER)
def starsd_fig6() -> Iterator[PaperRow]:
    """Figure 6b and 6c: the paper prints no numbers; its text gives the slow and the steady regime."""
    shipped = read_profile("rtx-4090", Path())
    for N in (2, 3, 1):
        gap_s = printed("idle_gap_s", N)
        ours_ms = draft_token_ms(3) * shipped.idle.slowdown(gap_s)
        case = {"N": N, "gap_ms": round(1000 * gap_s, 1), "hardware": shipped.name}
        yield row("t_s, ms", case, "identity" if N == 2 else "fitted", draft_token_ms(N), ours_ms)


@reproduces(PAPER)
def starsd_fig4() -> Iterator[PaperRow]:
    """Figure 4: one target, distributed against co-located EAGLE: arithmetic of the paper's own columns.

    The paper's cost of distribution is the excess of a round: 1 / 20.90 - 1 / 26.8. With t_s = 1.78 ms (EAGLE) and
    2.24 ms (N = 1) its draft part scales S of N = 1; what is left of the excess is communication.
    """
    paper, per_s = {"hardware": "RTX 4090 (paper)"}, printed("rounds_per_s", 1)
    excess_s = 1 / per_s - 1 / EAGLE["rounds_per_s"]
    slower_s = service_s(1) * (1 - EAGLE["draft_token_ms"] / draft_token_ms(1))
    throughput = EAGLE["throughput"] / EAGLE["rounds_per_s"] * per_s
    yield row("round excess of distribution, s", paper, "input", excess_s, excess_s)
    yield row("of it slower drafting, s", paper, "fitted", None, slower_s)
    yield row("of it communication, s", paper, "fitted", None, excess_s - slower_s)
    yield row("throughput at N = 1, tokens/s", paper, "identity", printed("throughput", 1), throughput)
