"""The engine decodes losslessly in one process and over processes; its logs replay."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.speculative import decode_speculatively
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.verify import Target
from specfleet.engine.launch.placement import crowding
from specfleet.engine.launch.processes import NodeProcess
from specfleet.engine.launch.serve import EngineRun, serve
from specfleet.engine.node.prompts import prompts_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import make_run
from specfleet.fleet.scenario.names import DRAFTER
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.messages import DraftRequest
from specfleet.fleet.stations.payload import ENVELOPE_BYTES
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of
from tests.helpers.marks import slow
from tests.helpers.pairs import DRAFTERS, VOCABULARY, drafters_of, pair_scenario
from tests.helpers.plain import plain_outputs, plain_text

RUNS: dict[str, EngineRun] = {}  # of scenarios in several tests


def greedy(scenario: Scenario) -> EngineRun:
    """Run a greedy scenario over processes, once for all tests."""
    assert scenario.workload.temperature == 0
    if scenario.digest() not in RUNS:
        RUNS[scenario.digest()] = serve(scenario)
    return RUNS[scenario.digest()]


def check_lossless(scenario: Scenario) -> EngineRun:
    served = greedy(scenario)
    assert served.outputs == plain_outputs(scenario)
    assert replay(served.run) == []
    return served


@pytest.mark.parametrize("depth", [slow(1), 3, slow(7)])
def test_greedy_speculation_equals_plain_decoding(tiny: Path, depth: int) -> None:
    target = Target(load_model(str(tiny / "target"), "target", "float64"))
    drafter = Drafter(load_model(str(tiny / "kin"), "drafter", "float64"))
    for prompt in prompts_of(resolve(pair_scenario(tiny))):
        tokens, _ = decode_speculatively(target, drafter, prompt, 40, depth)
        assert tokens == plain_text(str(tiny / "target"), "float64", prompt, 40)


def test_real_targets_over_processes_decode_what_plain_decoding_does(tiny: Path) -> None:
    served = check_lossless(pair_scenario(tiny))
    assert set(served.run.frame().origin) == {"real"}


def test_stations_that_take_turns_never_run_two_steps_at_once(tiny: Path) -> None:
    shared = {"device": "host"}
    scenario = pair_scenario(tiny, devices={"host": {"sharing": "turns"}}, drafters=shared, verifiers=shared)
    rows = check_lossless(scenario).run.frame()
    steps = rows[rows.event == "start"].merge(
        rows[rows.event == "done"], on=["station", "step"], suffixes=("_start", "_done")
    )
    # A lock is released after the work and before the report, so only the work must not overlap.
    begin = steps.time_s_done - steps.duration_s_done
    order = begin.argsort()
    ends = steps.time_s_done.to_numpy()[order][:-1]
    assert (begin.to_numpy()[order][1:] >= ends - 1e-3).all()


def test_without_a_drafter_targets_decode_plainly(tiny: Path) -> None:
    served = check_lossless(pair_scenario(tiny, drafters={"count": 0}))
    assert DRAFTER not in set(served.run.frame().station)


@pytest.mark.parametrize("kind", ["chain", slow("tree"), slow("EAGLE"), slow("EAGLE tree"), slow("EAGLE-3")])
def test_replayed_targets_accept_and_send_as_real_ones(tiny: Path, kind: str) -> None:
    quick = {"base_s": 0.001}
    drafters = {} if kind == "chain" else drafters_of(tiny, kind)
    profile, targets = {"name": "stated", "draft": quick, "verify": quick}, {"kind": "replayed", "verify": quick}
    served = serve(pair_scenario(tiny, profile=profile, drafters=drafters, verifiers=targets), tiny)
    assert replay(served.run) == []
    keys = ["request", "epoch"]
    runs = served.run.frame(), greedy(pair_scenario(tiny, drafters=drafters)).run.frame()
    accepted, committed = (
        [rows.query(query).sort_values(keys)[[*keys, "base", column]].reset_index(drop=True) for rows in runs]
        for query, column in (
            ("kind == 'verify' and event == 'done'", "accepted"),
            (f"station == '{DRAFTER}' and event == 'draft-request'", "payload_bytes"),
        )
    )
    assert accepted[0].equals(accepted[1])
    assert committed[0].equals(committed[1])
    origins = served.run.frame().groupby("station").origin.first()
    assert origins[DRAFTER] == "real"
    assert set(origins.drop(DRAFTER)) == {"replayed"}


def test_a_planted_fault_in_an_engine_log_is_found(tiny: Path) -> None:
    run = greedy(pair_scenario(tiny)).run
    rows = [tuple(row.values()) for row in run.table.to_pylist()]
    names = run.table.column_names
    dropped = next(number for number, row in enumerate(rows) if row[names.index("event")] == "draft-request")
    log = log_of(rows[:dropped] + rows[dropped + 1 :])
    assert replay(make_run(run.header.scenario, "engine", log, run.header.fleet)) != []


def test_more_models_than_cores_are_a_warning(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    shared = {"device": "host"}
    quiet: list[dict[str, Any]] = [
        {"verifiers": {"count": 1}},
        {"verifiers": {"count": 8, "kind": "replayed", "verify": {"base_s": 0.001}}},
        {"devices": {"host": {}}, "drafters": shared, "verifiers": {"count": 2, **shared}},
    ]
    assert [crowding(resolve(pair_scenario(tiny, **tables))) for tables in quiet] == [None] * 3
    assert "3 models run on 2 cores" in str(crowding(resolve(pair_scenario(tiny, verifiers={"count": 2}))))


def test_a_missing_model_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no-such-model.*give a Hugging Face folder, or 'demo'"):
        load_model(str(tmp_path / "no-such-model"), "target")


@pytest.mark.slow
def test_the_demo_pair_is_lossless_on_fifty_held_out_prompts() -> None:
    """Law 3, in float64: every token of every request."""
    load = {"requests": 50, "prompt_tokens": 96, "new_tokens": 24}
    tables = {"name": "lossless", "precision": "float64", "verifiers": {"count": 2}, "workload": load}
    served = check_lossless(make_scenario(tables))
    assert len(served.outputs) == 50


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "hidden"), [("EAGLE", 32), ("EAGLE-3", 96)])
def test_simulated_requests_count_hidden_states(tiny: Path, kind: str, hidden: int) -> None:
    quick, text = {"base_s": 0.001}, {"model": "geometric", "beta": 0.5}
    profile = {"name": "stated", "draft": quick, "verify": quick, "hidden": hidden}
    scenario = pair_scenario(tiny, profile=profile, acceptance=text, drafters=drafters_of(tiny, kind))
    for run in (serve(scenario).run, simulate(scenario)):
        requests = run.frame().query(f"station == '{DRAFTER}' and event == 'draft-request'")
        before = requests.groupby("request").base.shift(fill_value=0)
        committed = requests.base - before.replace(0, 1)
        tokens = np.where(before == 0, requests.base, 1)
        envelopes = requests.payload_bytes - 2 * hidden * committed - 4 * tokens
        assert ((envelopes - ENVELOPE_BYTES[DraftRequest]).abs() <= 8).all()  # numbers are packed by their size


QUICK = ("EAGLE tree", 0.0)
RULES = {"tree": "without-replacement", "dynamic tree": "match", "EAGLE tree": "top-k"}  # the others: rejection


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [case if case == QUICK else slow(*case) for case in itertools.product(DRAFTERS, (0.0, 0.8))],
)
def test_every_kind_of_draft_crosses_the_wire(tiny: Path, kind: str, temperature: float) -> None:
    tables = {"drafters": drafters_of(tiny, kind), "verifiers": {"rule": RULES.get(kind, "rejection")}}
    if temperature == 0:
        check_lossless(pair_scenario(tiny, **tables))
        return
    workload = {"temperature": temperature, "top_k": 12, "top_p": 0.9}
    served = serve(pair_scenario(tiny, **tables, workload=workload))
    assert replay(served.run) == []
    assert [len(tokens) for tokens in served.outputs.values()] == [20] * 6
    rows = served.run.frame()
    assert not (rows.event == "refusal").any()
    if kind == "EAGLE":  # a chain of random draws: the distribution of every token is sent
        drafts = rows.query("event == 'draft'")
        assert (drafts.payload_bytes >= drafts.tokens * (4 + 2 * VOCABULARY)).all()


def out_of_memory(_pipe: object, message: str) -> None:
    raise RuntimeError(message)


@pytest.mark.parametrize("message", [
    "CUDA out of memory. Tried to allocate 2.00 GiB.", "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
])  # fmt: skip
def test_a_full_device_is_one_line(message: str) -> None:
    node = NodeProcess("target 1", out_of_memory, message)
    with pytest.raises(InputError, match=r"^target 1: its device is out of memory; use smaller models"):
        node.receive()
    node.end()


def test_a_batch_beyond_the_memory_is_one_line(tiny: Path) -> None:
    many, most = {"requests": 10**5, "streams": 10**5, "new_tokens": 2}, {"count": 1, "max_num_seqs": 10**5}
    scenario = pair_scenario(tiny, drafters={"place": "target", "depth": 4096}, verifiers=most, workload=many)
    with pytest.raises(InputError, match=r"^target 1: its device is out of memory; use .* fewer or shorter rows"):
        serve(scenario)


UNGUARDED = """import specfleet

try:
    specfleet.run("star", verifiers={"count": 1}, workload={"requests": 1, "new_tokens": 4})
except specfleet.InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_an_unguarded_script_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0
    (line,) = ended.stdout.splitlines()
    assert 'if __name__ == "__main__":' in line
    assert "Traceback" not in ended.stderr
