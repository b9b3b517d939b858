"""`python -m tests.fuzz.pace`: honest targets at a drafter's port, alternately alone and beside attackers.

Real processes with replayed stations, as a user starts them: their texts, their rounds a second, and the memory of the
drafter's process. In the runs alone the attackers send the same to a port of no process, so that they use as much of
the cores. Exit status 1 if an attack changes a text, slows it by more than SLOWER, or leaves more than GROWN_MB behind.
"""

import argparse
import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specfleet.fleet.records.run import read_run
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.resolve import resolve
from tests.fuzz.attackers import Attacker
from tests.helpers.processes import ended, specfleet, start
from tests.helpers.zmtp import connected, framed

SLOWER, GROWN_MB = 0.02, 16.0
AFRESH_S = 0.01  # before a connection that follows one that was cut
SCENARIO = """name = "attacked"
profile = {name = "stated", draft = {base_s = 0.01}, verify = {base_s = 0.02}, draft_prefill = {base_s = 0.01}}
drafters = {kind = "replayed", depth = 5}
verifiers = {kind = "replayed", count = 4}
acceptance = {model = "geometric", beta = 0.7}
workload = {requests = REQUESTS, prompt_tokens = 64, new_tokens = 64}
"""


class Served(NamedTuple):
    """The results of the targets: accepted tokens of the rounds of each request; `grown_mb`: memory of the drafter.

    `frames`: that attackers sent in the meantime.
    """

    accepted: dict[int, list[int]]
    rounds_per_s: float
    grown_mb: float
    frames: int


def strike(path: Path, port: int, per_s: float, seed: int) -> None:
    """Print "ready", then send frames at that rate until the end; print their number. Port 0 is no process's."""
    fleet, rng, ending = resolve(read_scenario(path)), np.random.default_rng(seed), False

    def end(_number: int, _frame: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    attacker, sent = Attacker(fleet, "attacker", rng, None, bad=0.5), 0
    print("ready", flush=True)
    began_s = time.monotonic()
    while not ending:
        attacker.connect()
        time.sleep(AFRESH_S)
        with contextlib.suppress(OSError, AssertionError), connected(port) if port else socket.socket() as stream:
            while not ending:
                frame = framed(attacker.next_frame())
                if port:
                    stream.sendall(frame)
                sent += 1
                time.sleep(max(0.0, began_s + sent / per_s - time.monotonic()))
    print(sent)


def memory_mb(process: subprocess.Popen[str]) -> float:
    """Memory that the process has in use."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def serve(folder: Path, attackers: int, per_s: float, attacked: bool) -> Served:
    """Serve the targets to their end while so many attackers strike the drafter, or a port of no process."""
    path = folder / "fleet.toml"
    drafter = specfleet("drafter", path, "--port", "0", "--host", "127.0.0.1", "-o", folder / "drafter.parquet")
    started = [drafter]
    try:
        assert drafter.stderr is not None
        begins = drafter.stderr.readline()
        assert "public port" in begins, begins + ended(drafter)[2]
        port = begins.split()[-1]
        struck = port if attacked else "0"
        strikes = [
            start("-m", "tests.fuzz.pace", "--strike", path, struck, str(per_s / attackers), str(seed))
            for seed in range(attackers)
        ]
        started += strikes
        for process in strikes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", ended(process)[2]
        before_mb = memory_mb(drafter)
        words = ("--connect", f"127.0.0.1:{port}", "--target", "1-4", "-o", folder / "targets.parquet")
        targets = specfleet("verifier", path, *words)
        started.append(targets)
        status, _, err = ended(targets)
        assert status == 0, err
        grown_mb = memory_mb(drafter) - before_mb
        for process in strikes:
            process.terminate()
        frames = sum(int(ended(process)[1]) for process in strikes)
        drafter.send_signal(signal.SIGINT)
        status, _, err = ended(drafter)
        assert status == 128 + signal.SIGINT, err
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()
    rows = read_run(folder / "targets.parquet").frame()
    verified = rows[(rows.event == "done") & (rows.kind == "verify")].sort_values("time_s")
    accepted = {int(request): of.accepted.tolist() for request, of in verified.groupby("request")}
    return Served(accepted, (len(verified) - 1) / float(np.ptp(verified.time_s)), grown_mb, frames)


def main() -> int:
    """Serve alternately alone and beside attackers; print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.pace", description=__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="runs alone, and as many beside attackers")
    parser.add_argument("--attackers", type=int, default=2, help="processes")
    parser.add_argument("--per-s", type=float, default=1000.0, help="frames a second of all of them together")
    parser.add_argument("--requests", type=int, default=60, help="of the honest targets, all together")
    parser.add_argument("--strike", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.strike:
        path, port, per_s, seed = options.strike
        strike(Path(path), int(port), float(per_s), int(seed))
        return 0
    ratios, grown_mb, all_alike = [], [], True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fleet.toml").write_text(SCENARIO.replace("REQUESTS", str(options.requests)))
        for pair in range(options.pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            served = {attacked: serve(folder, options.attackers, options.per_s, attacked) for attacked in order}
            quiet, loud = served[False], served[True]
            ratios.append(loud.rounds_per_s / quiet.rounds_per_s)
            grown_mb.append(loud.grown_mb)
            alike = loud.accepted == quiet.accepted
            all_alike &= alike
            print(
                f"{quiet.rounds_per_s:.2f} rounds/s alone, {loud.rounds_per_s:.2f} beside {loud.frames} frames of "
                f"strangers ({ratios[-1] - 1:+.2%}); texts {'alike' if alike else 'NOT alike'}; the drafter's memory "
                f"grew by {loud.grown_mb:.1f} MB, alone by {quiet.grown_mb:.1f}",
                flush=True,
            )
    kept = all_alike and np.mean(ratios) >= 1.0 - SLOWER and max(grown_mb) <= GROWN_MB
    print(f"pace {np.mean(ratios) - 1:+.2%}: {'as it should be' if kept else 'NOT as it should be'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
