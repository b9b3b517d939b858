"""StarSD, figure 4: what it costs to put the drafter elsewhere, by the paper's own columns and on this host."""

from experiments.reproduce.rows import Inputs, Reproduction, Row, row
from experiments.reproduce.starsd_scaling import (
    DRAFT_TOKEN_MS,
    EAGLE_ROUNDS_PER_S,
    EAGLE_THROUGHPUT,
    EAGLE_TOKEN_MS,
    ROUNDS_PER_S,
    THROUGHPUT,
    service_s,
)
from fleet.records.metrics import measure
from fleet.scenario.reading import make_scenario
from fleet.times.profile import HardwareProfile
from sim.run import simulate


def starsd_fig4(inputs: Inputs) -> Reproduction:
    """Figure 4: one target, distributed against co-located EAGLE; and the same ratio on this host, if calibrated.

    Arithmetic of the paper's own columns; this host's ratio is one of other models, and predicts none of the paper's.

    The paper's cost of distribution is the excess of a round: 1 / 20.90 - 1 / 26.8. With t_s = 1.78 ms (EAGLE) and
    2.24 ms (N = 1) its draft part scales S of N = 1; what is left of the excess is communication.
    """
    distributed_s, colocated_s = 1 / ROUNDS_PER_S[0], 1 / EAGLE_ROUNDS_PER_S
    draft_share_s = service_s(0) * (1 - EAGLE_TOKEN_MS / DRAFT_TOKEN_MS[1])
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
