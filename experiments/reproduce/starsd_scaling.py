"""StarSD, table 1 and figure 4: rounds a second, waits, idle gaps and load against N.

The paper prints neither the depth nor t_c and t_v. What it prints is enough to know S = load / R_q in each column. The
return times follow from the columns that are under-loaded or, for the remote targets, from the one at N = 6; all
else is left to the simulation. Where S is that of a row's own column, its R_q and load are in its input and do not
count.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from experiments.reproduce.rows import Inputs, Kind, Reproduction, Row, row
from fleet.records.metrics import measure
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile
from sim.run import simulate

# Table 1 of the paper, columns N = 1 .. 6; times in milliseconds, rates a second, load in per cent.
N_COLUMNS = (1, 2, 3, 4, 5, 6)
ROUNDS_PER_S = (20.90, 49.25, 72.26, 81.54, 85.52, 85.84)
ROUNDS_PER_S_PER_TARGET = (20.90, 24.07, 23.38, 19.73, 16.64, 14.10)
LOAD = (0.333, 0.503, 0.754, 0.914, 0.995, 0.996)
WAIT_S = (0.00001, 0.0005, 0.0006, 0.0039, 0.0130, 0.0223)
IDLE_GAP_S = (0.0306, 0.0098, 0.0034, 0.0006, 0.0, 0.0)
THROUGHPUT = (79.9, 167.6, 246.3, 266.6, 285.5, 288.7)
THROUGHPUT_PER_TARGET = (86.6, 100.9, 98.3, 80.94, 69.49, 57.78)
EAGLE_ROUNDS_PER_S, EAGLE_THROUGHPUT = 26.8, 94.3
EAGLE_TOKEN_MS, TOKEN_MS = 1.78, 2.24  # t_s of EAGLE, and of N = 1

# What a wait and a gap are parts of, in seconds: a target's round, and the time between two requests.
WHOLES = {
    "wait_s": {N: N / rate for N, rate in zip(N_COLUMNS, ROUNDS_PER_S, strict=True)},
    "idle_gap_s": {N: 1 / rate for N, rate in zip(N_COLUMNS, ROUNDS_PER_S, strict=True)},
}

NEW_TOKENS = 6000
LOCAL = 3  # targets on the drafter's server; those beyond are remote A100s (section 5.2)
# Standard deviation of a draft over its mean, from the means and variances of table 2 (N = 1, 2, 3, and on).
VARIATION = tuple(math.sqrt(variance) / mean for mean, variance in ((16.06, 6.34), (8.86, 0.30), (9.17, 0.12)))
ASSUMED = [
    "the paper prints neither d, t_c nor t_v: S = load / R_q of each column is taken as input",
    "service times vary uniformly with the variance of table 2 (that of N = 3 beyond); return times are constant",
    "targets 1 to 3 share one local return time, targets 4 to 6 one remote return time (A100 servers, LAN)",
]


def service_s(column: int) -> float:
    """S of a column: load / R_q, since the drafter's busy share is its rate times its service time."""
    return LOAD[column] / ROUNDS_PER_S[column]


def local_return_s() -> float:
    """One local Z from N <= 3, all under-loaded: the mean of N / R_q - S, equation (10) with (9)."""
    return float(np.mean([N_COLUMNS[c] / ROUNDS_PER_S[c] - service_s(c) for c in range(LOCAL)]))


def remote_return_s(local_s: float) -> float:
    """One remote Z from N = 6: with the wait that the paper prints there, each target's cycle is S + Z_i + T_wait."""
    common_s = service_s(5) + WAIT_S[5]

    def surplus(remote_s: float) -> float:
        return 3 / (common_s + local_s) + 3 / (common_s + remote_s) - ROUNDS_PER_S[5]

    return float(brentq(surplus, 0.001, 1.0))


def spread_of_drafts(N: int) -> dict[str, Any]:
    """Uniform spread with the variance that table 2 prints for N targets."""
    half_width = math.sqrt(3) * VARIATION[min(N, LOCAL) - 1]
    return {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [1 - half_width, 1 + half_width]}


def star(N: int, S_s: float, local_s: float, remote_s: float, seed: int = 0) -> Scenario:
    """The paper's fleet with N targets; no prefill, long requests: table 1 is a steady state."""
    return make_scenario(
        {
            "name": "starsd-table1",
            "seed": seed,
            "profile": {
                "name": "starsd-table1",
                "draft": {"base_s": S_s, "spread": spread_of_drafts(N)},
                "verify": {"base_s": local_s},
            },
            "acceptance": {"model": "geometric", "beta": 0.75},
            "drafters": {"depth": 5},
            "verifiers": {
                "count": N,
                "tiers": [{"first": LOCAL + 1, "verify": {"base_s": remote_s}}],
            },
            "workload": {"requests": N, "prompt_tokens": 10, "new_tokens": NEW_TOKENS},
        }
    )


def kind_of(quantity: str, N: int, own_S: Sequence[int], own_Z: Sequence[int]) -> Kind:
    """Say what kind of number a quantity of column N is; `own_S`, `own_Z`: columns that gave their S, a return time.

    The gap before a request is (1 - load) / R_q in the simulation: nothing new where R_q and load count already, or
    where S and Z are the column's own.
    """
    if quantity == "rounds_per_s_per_target" or (quantity == "wait_s" and N == 1):
        return "identity"  # R_q / N; and nobody else asks
    if quantity == "idle_gap_s":
        return "predicted" if N in own_S and N not in own_Z else "identity"
    if quantity == "wait_s":
        return "fitted" if N > LOCAL and N in own_Z else "predicted"  # the remote return time has that wait in it
    return "fitted" if N in own_S else "predicted"


def simulated_rows(
    services_s: Sequence[float], local_s: float, remote_s: float, own_S: Sequence[int], own_Z: Sequence[int]
) -> list[Row]:
    """Simulate each column; `own_S`, `own_Z` as in `kind_of`."""
    rows = []
    for column, N in enumerate(N_COLUMNS):
        metrics = measure(simulate(star(N, services_s[column], local_s, remote_s)))
        case = {"N": N}
        for quantity, paper in (
            ("rounds_per_s", ROUNDS_PER_S),
            ("rounds_per_s_per_target", ROUNDS_PER_S_PER_TARGET),
            ("load", LOAD),
            ("wait_s", WAIT_S),
            ("idle_gap_s", IDLE_GAP_S),
        ):
            kind = kind_of(quantity, N, own_S, own_Z)
            whole_s = WHOLES.get(quantity, {}).get(N)
            rows.append(row(quantity, case, kind, paper[column], metrics[quantity].value, part_of=whole_s))
    return rows


def identity_rows() -> list[Row]:
    """The paper's own numbers against each other: O is not N O_i, while R_q is N R_p."""
    rows = []
    for column, N in enumerate(N_COLUMNS):
        case = {"N": N, "source": "the paper's own columns"}
        rows.append(row("O against N O_i", case, "identity", THROUGHPUT[column], N * THROUGHPUT_PER_TARGET[column]))
        rows.append(
            row("R_q against N R_p", case, "identity", ROUNDS_PER_S[column], N * ROUNDS_PER_S_PER_TARGET[column])
        )
    return rows


def starsd_table1(inputs: Inputs) -> Reproduction:
    """Table 1 with S of each column, one local Z from N <= 3 and one remote Z from N = 6."""
    services_s = [service_s(column) for column in range(6)]
    local_s = local_return_s()
    remote_s = remote_return_s(local_s)
    inputs = [row("service_s", {"N": N}, "input", services_s[c], services_s[c]) for c, N in enumerate(N_COLUMNS)]
    fits = [
        row("return_s, local", {"N": "1..3"}, "fitted", None, local_s),
        row("return_s, remote", {"N": 6}, "fitted", None, remote_s),
    ]
    rows = [*inputs, *fits, *simulated_rows(services_s, local_s, remote_s, N_COLUMNS, (1, 2, 3, 6)), *identity_rows()]
    return Reproduction("starsd-table1", rows, ASSUMED)


def starsd_table1_blind(inputs: Inputs) -> Reproduction:
    """Table 1 from N <= 3 alone: S of N = 3 for all larger N, and remote targets taken to be like local ones."""
    services_s = [service_s(min(column, LOCAL - 1)) for column in range(6)]
    local_s = local_return_s()
    inputs = [row("service_s", {"N": N}, "input", services_s[N - 1], services_s[N - 1]) for N in N_COLUMNS[:LOCAL]]
    fits = [row("return_s, local", {"N": "1..3"}, "fitted", None, local_s)]
    rows = [*inputs, *fits, *simulated_rows(services_s, local_s, local_s, (1, 2, 3), (1, 2, 3)), *identity_rows()]
    return Reproduction("starsd-table1-blind", rows, [*ASSUMED[:2], "remote targets are taken to be like local ones"])


def starsd_fig4(inputs: Inputs) -> Reproduction:
    """Figure 4: one target, distributed against co-located EAGLE; and the same ratio on this host, if calibrated.

    Arithmetic of the paper's own columns; this host's ratio is one of other models, and predicts none of the paper's.

    The paper's cost of distribution is the excess of a round: 1 / 20.90 - 1 / 26.8. With t_s = 1.78 ms (EAGLE) and
    2.24 ms (N = 1) its draft part scales S of N = 1; what is left of the excess is communication.
    """
    distributed_s, colocated_s = 1 / ROUNDS_PER_S[0], 1 / EAGLE_ROUNDS_PER_S
    draft_share_s = service_s(0) * (1 - EAGLE_TOKEN_MS / TOKEN_MS)
    communication_s = distributed_s - colocated_s - draft_share_s
    paper = {"hardware": "RTX 4090 (paper)"}
    tokens_per_round = EAGLE_THROUGHPUT / EAGLE_ROUNDS_PER_S
    rows = [
        row(
            "round excess of distribution, s", paper, "input", distributed_s - colocated_s, distributed_s - colocated_s
        ),
        row("of it slower drafting, s", paper, "fitted", None, draft_share_s),
        row("of it communication, s", paper, "fitted", None, communication_s),
        row("throughput at N = 1, tokens/s", paper, "identity", THROUGHPUT[0], tokens_per_round * ROUNDS_PER_S[0]),
    ]
    assumptions = ["tokens a round are those of EAGLE, 94.3 / 26.8: distribution does not change acceptance (C.1)"]
    if inputs.profile is not None:
        rows += _host_rows(inputs.profile)
        assumptions.append("this host: depth 5, acceptance and times of its calibrated profile; co-located has no link")
    return Reproduction("starsd-fig4", rows, assumptions)


def _host_rows(profile: HardwareProfile) -> list[Row]:
    content = {"name": "fig4", "profile": profile, "workload": {"prompt_tokens": 128, "new_tokens": 48, "requests": 96}}
    one_process = {
        "devices": {"host": {"sharing": "one-process"}},
        "drafters": {"device": "host"},
        "verifiers": {"device": "host"},
    }
    rates = [measure(simulate(make_scenario(content | tables)))["throughput"].value for tables in ({}, one_process)]
    case = {"hardware": profile.name}
    return [
        row(
            "distributed over co-located throughput",
            case,
            "measured",
            THROUGHPUT[0] / EAGLE_THROUGHPUT,
            rates[0] / rates[1],
        )
    ]
