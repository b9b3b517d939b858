"""A star of two tiers of replayed stations as processes, with times and links of their own, and its prediction.

The prediction knows the run's step times and accepted lengths, links are the scenario's; a second one also knows the
delays around the run's steps, which are the host's.
"""

import argparse
from functools import partial

import numpy as np

import specfleet
from bench.harness import Aim, Options, Report, Row, run
from bench.replayed import ACCEPTANCE, DEPTH, NEW_TOKENS, uniform
from specfleet.fleet.acceptance.models import expected_committed
from specfleet.fleet.records.metrics.measure import measure_targets
from specfleet.fleet.records.playback import MECHANISM, playback_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

SERVICE_S, VERIFY_S, PREFILL_S, LINK_S = 0.03, (0.15, 0.3), (0.2, 0.45), (0.01, 0.04)  # of targets of both tiers
TIERS = {"tier 1": slice(0, 2), "tier 2": slice(2, 4), "all": slice(4)}  # of targets
QUANTITIES = {"rounds_per_s": "rounds/s", "throughput": "tokens/s"}
AIM = 2.0  # hundredths

OPTIONS: Options = {
    "--seconds": {"type": float, "default": 30.0, "help": "about how long the fleet runs"},
    "--passes": {"type": int, "default": 3, "help": "runs of the fleet"},
}


def study(options: argparse.Namespace) -> Report:
    """Run the fleet several times, and predict each run, in all and by tier."""
    results = run({"two tiers": partial(specfleet.run, star(options.seconds))}, options.passes)["two tiers"]
    rows = [row for result in results for row in errors(result.run)]
    found = {row["of"]: [abs(other["error, %"]) for other in rows if other["of"] == row["of"]] for row in rows}
    aims = [Aim(f"{of}: absolute error, %, mean of runs", float(np.mean(each)), AIM) for of, each in found.items()]
    return Report({"simulated with the run's steps and acceptance, and as processes": rows}, aims)


def star(seconds: float) -> Scenario:
    """Return the star, with requests for about `seconds`; steps spread evenly around their means."""
    rounds = seconds / (SERVICE_S + 2 * LINK_S[0] + VERIFY_S[0])
    per_target = max(1, round(rounds * expected_committed(ACCEPTANCE, DEPTH) / NEW_TOKENS))
    near, far = (
        {
            "name": name, "draft": uniform(SERVICE_S, 0.3), "draft_prefill": {"base_s": 2 * SERVICE_S},
            "verify": uniform(verify_s, 0.3), "verify_prefill": {"base_s": prefill_s},
        }
        for name, verify_s, prefill_s in zip(("near", "far"), VERIFY_S, PREFILL_S, strict=True)
    )  # fmt: skip
    tiers = [{"first": 3, "profile": far, "link": {"latency_s": LINK_S[1]}}]
    return make_scenario(
        {
            "name": "two tiers",
            "profile": near,
            "link": {"latency_s": LINK_S[0]},
            "acceptance": ACCEPTANCE,
            "drafters": {"kind": "replayed", "depth": DEPTH},
            "verifiers": {"kind": "replayed", "count": 4, "tiers": tiers},
            "workload": {"requests": 4 * per_target, "prompt_tokens": 64, "new_tokens": NEW_TOKENS},
        }
    )


def errors(ran: Run) -> list[Row]:
    """Return rounds and tokens a second of each tier and of all, simulated and measured, and errors in hundredths."""
    played = [simulate(ran.header.scenario, playback_of(ran, parts)) for parts in (MECHANISM, (*MECHANISM, "overhead"))]
    worlds, rows = [measure_targets(each) for each in (ran, *played)], []
    for tier, targets in TIERS.items():
        for key, name in QUANTITIES.items():
            measured, simulated, with_delays = (float(world[key][targets].sum()) for world in worlds)
            error, rest = (100 * (predicted / measured - 1) for predicted in (simulated, with_delays))
            row = {"of": f"{name}, {tier}", "simulated": simulated, "measured": measured}
            rows.append(row | {"error, %": error, "with its delays, %": rest})
    return rows
