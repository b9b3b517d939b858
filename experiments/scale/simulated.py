"""Large fleets simulated, each in a process of its own, so that its memory and processor time can be told."""

import subprocess
import sys
import time
from collections.abc import Mapping

import msgspec

from experiments.bench.scale import peak_bytes
from experiments.scale.places import IN_TURN, PLACES, TARGETS_OF_DRAFTER, Place, fleet_of
from experiments.terminal.exits import run_child
from fleet.records.metrics import measure
from sim.run import simulate

BY_LOOP, BY_SIMPY = 2, 1  # requests of a target: the compiled loop takes less time
SHARED = {"policy": "shortest-queue"}


class Work(msgspec.Struct, frozen=True):
    """What to simulate: a place by its number, how many drafters, how they serve; `view_s` of a router's views."""

    place: int
    drafters: int
    mode: str = IN_TURN
    view_s: float | None = None


class Simulated(msgspec.Struct, frozen=True):
    """What a simulation gave, by its metrics (`fleet/records/glossary.py`), and what it cost.

    `load`: share of time in which a drafter works. `rounds`: all of the run, whose last moment is `simulated_s`.
    """

    work: Work
    tokens_per_s: float
    rounds_per_s: float
    round_s: float
    load: float
    request_bytes: float
    draft_bytes: float
    accepted_per_round: float
    rounds: int
    simulated_s: float
    path: str
    cpu_s: float
    peak_bytes: int

    @property
    def targets(self) -> int:
        """How many targets there were."""
        return TARGETS_OF_DRAFTER * self.work.drafters


def place_of(work: Work) -> Place:
    """Return the place of a simulation."""
    return PLACES[work.place]


def simulated(work: Work) -> Simulated:
    """Simulate in a process of its own."""
    program = "import sys; from experiments.scale.simulated import tell; tell(sys.argv[1])"
    command = [sys.executable, "-c", program, msgspec.json.encode(work).decode()]
    done = run_child(command, stdout=subprocess.PIPE, start_new_session=True)  # Ctrl-C is for us, who then end it
    done.check_returncode()
    return msgspec.json.decode(done.stdout, type=Simulated)


def tell(work: str) -> None:
    """Simulate, and write what came out to standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(simulated_here(msgspec.json.decode(work, type=Work))))


def simulated_here(work: Work) -> Simulated:
    """Simulate in this process, whose peak of memory is that of all that it has done."""
    route, requests = None, BY_LOOP if work.mode == IN_TURN else BY_SIMPY
    if work.view_s is not None:
        requests = BY_SIMPY
        route = {"route": SHARED, "move": "shared", "view_delay_s": work.view_s}
    scenario = fleet_of(place_of(work), work.drafters, work.mode, requests, route)
    before_s = time.process_time()
    run = simulate(scenario)
    metrics = measure(run)
    cpu_s, peak = time.process_time() - before_s, peak_bytes()
    value: Mapping[str, float] = {name: metric.value for name, metric in metrics.items()}
    rows = run.columns()
    return Simulated(
        work,
        tokens_per_s=value["throughput"],
        rounds_per_s=value["rounds_per_s"],
        round_s=value["round_s"],
        load=value["load"],
        request_bytes=value["request_bytes"],
        draft_bytes=value["draft_bytes"],
        accepted_per_round=value["acceptance_length"],
        rounds=int((rows.event.among("done") & rows.kind.among("verify")).sum()),
        simulated_s=float(rows.time_s.max()),
        path=run.header.path,
        cpu_s=cpu_s,
        peak_bytes=peak,
    )
