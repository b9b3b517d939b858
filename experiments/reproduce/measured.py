"""Measured on this host: DSDE's table II and EqSpec's figure 5b with the demo pair, StarSD's table 1 as processes.

Other models on another machine: such rows are no predictions, and do not count as evidence for any. They show whether
an effect that the simulator assumes is there, and how large it is.

StarSD's table 1 runs replayed stations with the paper's S and Z over this host's transport. A return is a link each
way, with the stated delay, and a verification of the rest of Z, so this host's transport is part of Z. Its time
between steps comes on top.
"""

from typing import Any

import msgspec
import numpy as np
from scipy.stats import pearsonr

from experiments.reproduce.batch_model import OVERHEAD
from experiments.reproduce.dsde import TABLE_2
from experiments.reproduce.rows import Inputs, PaperRow, Reproduction, row
from experiments.reproduce.starsd import (
    ASSUMED,
    IDLE_GAP_S,
    LOAD,
    N_COLUMNS,
    ROUNDS_PER_S,
    WAIT_S,
    WHOLES,
    local_return_s,
    remote_return_s,
    return_variation,
    service_s,
    star,
)
from fleet.acceptance.models import expected_committed
from fleet.acceptance.token import Token
from fleet.policies.dsde import wvir
from fleet.records.metrics.measure import measure
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.step_time import LinkTime
from sim.run import simulate

WVIR = {0.0: 0.128, 1.0: -0.031}  # table II's third row
WINDOW = 10  # tokens of the lagging mean of the divergence, as in dsde.py
SIZES = (1, 2, 4, 8, 16, 32)


def batch_of(rule: dict[str, Any], requests: int, temperature: float = 0.0) -> Scenario:
    """The demo pair on evaluation prompts of mixed length."""
    return make_scenario(
        {
            "name": "measured", "batch": {"rule": rule, "padded": False}, "drafters": {"depth": 5},
            "workload": {
                "requests": requests, "prompt_tokens": {"low": 96, "high": 192}, "new_tokens": 64,
                "temperature": temperature,
            },
        }
    )  # fmt: skip


def correlations(sessions: list[list[Token]]) -> dict[str, float]:
    """Pearson correlations of a token's acceptance probability with what is known of it, or was known before it.

    The draft's entropy is the token's own; mean divergence and WVIR, equation (4), are those of the tokens before it.
    """
    ratio, entropy, kld, variance_ratio = [], [], [], []
    for tokens in sessions:
        klds = [token.kld for token in tokens]
        for place in range(WINDOW, len(tokens)):
            ratio.append(tokens[place].ratio)
            entropy.append(tokens[place].entropy)
            kld.append(np.mean(klds[place - WINDOW : place]))
            variance_ratio.append(wvir(klds[:place]))
    named = {"draft entropy": entropy, "mean KLD": kld, "WVIR": variance_ratio}
    return {name: float(pearsonr(ratio, values).statistic) for name, values in named.items()}


def dsde_table2(_inputs: Inputs) -> Reproduction:
    """Table II: correlations of signals with token acceptance, on the demo pair."""
    from engine.launch.serve import serve

    rows: list[PaperRow] = []
    for temperature, (of_entropy, of_kld) in TABLE_2.items():
        served = serve(batch_of({"policy": "slots", "size": 8}, 96, temperature), signals=True)
        ours = correlations(list(served.signals.values()))
        papers = {"draft entropy": of_entropy, "mean KLD": of_kld, "WVIR": WVIR[temperature]}
        for name, paper in papers.items():
            case = {"signal": name, "temperature": temperature}
            rows.append(row("correlation with acceptance", case, "measured", paper, ours[name]))
    notes = [
        "the demo pair on this host, 96 evaluation prompts; the paper: Llama 3.1 70B and 3.2 1B on CNN/DM",
        "divergence and entropy at temperature 1 for greedy rows; acceptance is 0 or 1 there",
        f"mean KLD over the last {WINDOW} tokens; WVIR by equation (4) over tokens, not steps",
    ]
    return Reproduction("dsde-table2", rows, notes)


def batch_fig5b_engine(_inputs: Inputs) -> Reproduction:
    """Figure 5b: share of its time that EqSpec spends on realigning, by batch size, on the engine."""
    from engine.launch.serve import serve

    rows: list[PaperRow] = []
    for B in SIZES:
        run = serve(batch_of({"policy": "realign", "size": B}, max(16, 2 * B))).run
        share = measure(run)["realign_share"].value
        printed = {source: shares[B] for source, shares in OVERHEAD.items() if B in shares}
        for source, paper in (printed or {"not printed": None}).items():
            rows.append(row("overhead, share of time", {"B": B, "source": source}, "measured", paper, share))
    notes = [
        "the demo pair on this host, prompts of 96 to 192 tokens, 64 new ones; the paper: Vicuna-7B and 68M on an A100",
        "realigning copies both caches: a share that grows with rows and context, and falls with the model's own cost",
    ]
    return Reproduction("batch-fig5b-engine", rows, notes)


LINK_S = 0.0025  # of a return that takes 31 ms, or 42: assumed, one way
SECONDS = 15.0  # of each column
PRINTED = {"rounds_per_s": ROUNDS_PER_S, "load": LOAD, "wait_s": WAIT_S, "idle_gap_s": IDLE_GAP_S}


def fleet_of(column: int, seconds: float, variation: float) -> Scenario:
    """A column of the table as a fleet of replayed stations, with requests of about `seconds`.

    `variation`: standard deviation of a return time over its mean.
    """
    count, local_s = N_COLUMNS[column], local_return_s()
    verify_s, remote_s = local_s - 2 * LINK_S, remote_return_s(local_s) - 2 * LINK_S
    links_do_not = local_s / verify_s  # vary
    stated = star(count, service_s(column), verify_s, remote_s, variation * links_do_not)
    assert stated.acceptance is not None
    committed = expected_committed(stated.acceptance, stated.drafters.depth)  # type: ignore[arg-type]  # `star` states one
    new_tokens = round(committed * seconds * ROUNDS_PER_S[column] / count)
    return msgspec.structs.replace(
        stated,
        link=LinkTime(LINK_S),
        drafters=msgspec.structs.replace(stated.drafters, kind="replayed"),
        verifiers=msgspec.structs.replace(stated.verifiers, kind="replayed"),
        workload=msgspec.structs.replace(stated.workload, new_tokens=new_tokens),
    )


def starsd_table1_engine(_inputs: Inputs) -> Reproduction:
    """Table 1 run as processes with the paper's S and Z, beside the paper and beside the simulation of the same."""
    from engine.launch.serve import serve

    rows: list[PaperRow] = []
    variation = return_variation(local_return_s())
    for column, N in enumerate(N_COLUMNS):
        scenario = fleet_of(column, SECONDS, variation)
        ran, simulated = measure(serve(scenario).run), measure(simulate(scenario))
        for quantity, paper in PRINTED.items():
            whole_s = WHOLES.get(quantity, {}).get(N)
            for source, kind, metrics in (("processes", "measured", ran), ("simulation", "identity", simulated)):
                case = {"N": N, "of": source}
                rows.append(row(quantity, case, kind, paper[column], metrics[quantity].value, part_of=whole_s))  # type: ignore[arg-type]
    notes = [
        f"of each return time {2 * LINK_S * 1000:g} ms are links, stated and held back; the paper does not say",
        f"each column runs for {SECONDS:g} s as two processes; rows of the simulation are the same scenario's",
        *_apart(rows),
    ]
    return Reproduction("starsd-table1-engine", rows, [*ASSUMED, *notes])


def _apart(rows: list[PaperRow]) -> list[str]:
    """Say how far processes and simulation are apart; a wait as a share of its round, a gap of the time between two."""
    lines = []
    for quantity in PRINTED:
        ran, simulated = (
            [each for each in rows if each.quantity == quantity and each.case["of"] == source]
            for source in ("processes", "simulation")
        )
        errors = [
            abs((theirs.ours or 0.0) - (ours.ours or 0.0))
            / WHOLES.get(quantity, {}).get(ours.case["N"], ours.ours or 1.0)
            for ours, theirs in zip(ran, simulated, strict=True)
        ]
        lines.append(
            f"{quantity}: the simulation is off the processes by {sum(errors) / len(errors):.1%} on average, "
            f"{max(errors):.1%} at worst"
        )
    return lines
