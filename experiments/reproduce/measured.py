"""What the papers measured on their hardware, measured here with the demo pair: table II of DSDE, figure 5b of EqSpec.

Other models on another machine: such rows are no predictions, and do not count as evidence for any. They show whether
an effect that the simulator assumes is there at all, and how large.
"""

from typing import Any

import numpy as np
from scipy.stats import pearsonr

from experiments.reproduce.batch_model import OVERHEAD
from experiments.reproduce.dsde import TABLE_2
from experiments.reproduce.rows import Inputs, Reproduction, Row, row
from fleet.chance.token import Token
from fleet.policies.dsde import Dsde
from fleet.records.metrics import measure
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario

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
    rule = Dsde()
    ratio, entropy, kld, wvir = [], [], [], []
    for tokens in sessions:
        klds = [token.kld for token in tokens]
        for place in range(WINDOW, len(tokens)):
            ratio.append(tokens[place].ratio)
            entropy.append(tokens[place].entropy)
            kld.append(np.mean(klds[place - WINDOW : place]))
            wvir.append(rule.wvir(klds[:place]))
    named = {"draft entropy": entropy, "mean KLD": kld, "WVIR": wvir}
    return {name: float(pearsonr(ratio, values).statistic) for name, values in named.items()}


def dsde_table2(_inputs: Inputs) -> Reproduction:
    """Table II: correlations of signals with token acceptance, on the demo pair."""
    from engine.launch.serve import serve

    rows: list[Row] = []
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

    rows: list[Row] = []
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
