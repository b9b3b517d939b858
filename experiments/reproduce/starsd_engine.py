"""StarSD's table 1 as processes: replayed stations with the paper's S and Z, over this host's transport.

S and Z of each column are those of `starsd_scaling.py`. A return is a link each way, which is stated and held back, and
a verification of what is left of Z; so what this host's transport takes is part of Z. What it takes between steps comes
on top.
"""

import msgspec

from experiments.reproduce.rows import Inputs, Reproduction, Row, row
from experiments.reproduce.starsd_scaling import (
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
from fleet.chance.acceptance import expected_committed
from fleet.records.metrics import measure
from fleet.scenario.scenario import Scenario
from fleet.times.step_time import LinkTime
from sim.run import simulate

LINK_S = 0.0025  # of a return that takes 31 ms, or 42: assumed, one way
SECONDS = 15.0  # of each column
PRINTED = {"rounds_per_s": ROUNDS_PER_S, "load": LOAD, "wait_s": WAIT_S, "idle_gap_s": IDLE_GAP_S}


def fleet_of(column: int, seconds: float, variation: float) -> Scenario:
    """A column of the table as a fleet of replayed stations, whose requests take about `seconds`.

    `variation`: standard deviation of a return time over its mean.
    """
    count, local_s = N_COLUMNS[column], local_return_s()
    verify_s, remote_s = local_s - 2 * LINK_S, remote_return_s(local_s) - 2 * LINK_S
    links_do_not = local_s / verify_s  # vary
    stated = star(count, service_s(column), verify_s, remote_s, variation * links_do_not)
    assert stated.acceptance is not None
    committed = expected_committed(stated.acceptance, stated.drafters.depth)  # type: ignore[arg-type]
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

    rows: list[Row] = []
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


def _apart(rows: list[Row]) -> list[str]:
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
