"""Sweeps and comparisons as a user meets them: cells, reruns, failures, tolerances."""

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pandas as pd
import pytest

from specfleet.experiments.sweep.cell import ANALYTIC, CellResult, run_cell
from specfleet.experiments.sweep.figure import sweep_figure
from specfleet.experiments.sweep.sweep import (
    cell_file,
    cells_of,
    distinct,
    parse_vary,
    read_table,
    sweep,
    table,
    vary_of,
    wide_table,
)
from specfleet.fleet.acceptance.signals import write_signals
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Token
from specfleet.fleet.records.power import DeviceCurve
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile, write_profile
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.run import simulate
from tests.helpers.stars import TABLES, star

SMALL = star(workload={"requests": 16, "new_tokens": 24})


def swept(counts: list[int], folder: Path, seeds: int = 1, **options: Any) -> list[CellResult]:
    cells = cells_of({"verifiers.count": counts})
    return sweep([(cell, change_scenario(SMALL, cell)) for cell in cells], folder, seeds=seeds, **options)


def test_a_table_in_pieces_is_the_table_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept([1, 2, 3], tmp_path / "once")
    monkeypatch.setattr("specfleet.experiments.sweep.sweep.PIECE", 2)
    swept([1, 2, 3], tmp_path / "pieces")
    assert (tmp_path / "pieces" / "sweep.csv").read_bytes() == (tmp_path / "once" / "sweep.csv").read_bytes()


def test_no_cell_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Path] = []
    monkeypatch.setattr("os.fsync", lambda file: waited.append(Path(f"/proc/self/fd/{file}").readlink().parent))
    swept([1, 2, 3], tmp_path)
    assert set(waited) == {tmp_path}  # the table and the record, not what is in cells/


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verifiers.count=1:4", ("verifiers.count", [1, 2, 3, 4])),
        ("verifiers.count=1:16:5", ("verifiers.count", [1, 6, 11, 16])),
        ("acceptance.beta=0.5,0.9", ("acceptance.beta", [0.5, 0.9])),
        ("drafters.order=fifo,priority", ("drafters.order", ["fifo", "priority"])),
        ("drafters.depth=7", ("drafters.depth", [7])),
    ],
)
def test_vary_reads_ranges_with_both_ends_and_lists(text: str, expected: tuple[str, list[object]]) -> None:
    assert parse_vary(text) == expected


@pytest.mark.parametrize("values", ["", "=", "=4:1", "=1-8", "=0.1:0.5:0.1", "=1ms:20ms", "=1e-3:1e-2", "=1:9:0"])
def test_vary_says_how_it_is_written(values: str) -> None:
    with pytest.raises(InputError, match=f"^--vary a.key{values}: .*(FIRST:LAST|1 to 100000; steps)"):
        parse_vary(f"a.key{values}")


def test_a_key_that_is_varied_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"verifiers\.count: stands twice"):
        vary_of(["verifiers.count=1:3", "drafters.depth=2,4", "verifiers.count=4"])


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    one, two = (swept([1, 2, 3, 4], tmp_path / str(jobs), seeds=3, workers=jobs) for jobs in (1, 2))
    assert msgspec.json.encode(one) == msgspec.json.encode(two)


def test_a_rerun_computes_only_what_is_missing_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []

    def counted(cell: dict[str, object], *rest: object) -> CellResult:
        ran.append(cell)
        return run_cell(cell, *rest)

    monkeypatch.setattr("specfleet.experiments.sweep.sweep.run_cell", counted)
    swept([2], tmp_path / "out")
    results = swept([1, 2, 3], tmp_path / "out")
    assert ran == [{"verifiers.count": N} for N in (2, 1, 3)]
    assert repr(results) == repr(swept([1, 2, 3], tmp_path / "fresh"))
    assert list(pd.read_csv(tmp_path / "out" / "sweep.csv")["verifiers.count"].unique()) == [1, 2, 3]


@pytest.mark.parametrize("place", ["sweep.csv", "sweep.json", "cells/verifiers.count=2.json"])
def test_a_folder_in_place_of_results_is_refused_first(tmp_path: Path, place: str) -> None:
    (tmp_path / "out" / place).mkdir(parents=True)
    with pytest.raises(InputError, match=rf"^{tmp_path / 'out' / place}: is a folder, where results belong; "):
        swept([1, 2], tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_a_stopped_sweep_says_what_it_keeps_and_finds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found: list[bool] = []

    def done(result: CellResult) -> None:
        found.append(result.found)
        if len(found) == 2:
            raise KeyboardInterrupt

    cells = [({"verifiers.count": N}, star(verifiers={"count": N})) for N in (1, 2, 3)]
    with pytest.raises(KeyboardInterrupt):
        sweep(cells, tmp_path, seeds=1, done=done)
    sweep(cells, tmp_path, seeds=1, done=done)
    assert caplog.messages == [
        f"interrupted: 2 of 3 cells ran, kept in {tmp_path}",
        f"{tmp_path}: 2 of 3 cells were there and do not run again",
    ]
    assert found == [False, False, True, True, False]


def test_a_value_that_is_written_otherwise_is_the_same_cell(tmp_path: Path) -> None:
    made = [({"link.latency_s": text}, change_scenario(SMALL, {"link.latency_s": text})) for text in ("10ms", 0.01)]
    with pytest.raises(InputError, match=r"--vary link\.latency_s=0\.01: is the same as link\.latency_s=10ms; leave "):
        distinct(made)
    for cells in (made[:1], made[1:]):
        sweep(cells, tmp_path, seeds=1)
    assert set(pd.read_csv(tmp_path / "sweep.csv")["link.latency_s"]) == {0.01}


def test_a_narrower_sweep_keeps_the_cells_of_a_wider(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    swept([1, 2, 3, 4], tmp_path)
    assert len(swept([3], tmp_path)) == 1
    for counts in (pd.read_csv(tmp_path / "sweep.csv"), read_table(tmp_path)):
        assert set(counts["verifiers.count"]) == {1, 2, 3, 4}
    assert caplog.messages == []
    swept([3], tmp_path, seeds=2)
    assert set(read_table(tmp_path)["verifiers.count"]) == {3}
    assert caplog.messages == [
        f"{tmp_path}: summary and figures now show these cells; 3 of an earlier sweep stay in cells/"
    ]


def test_a_stopped_sweep_keeps_its_own_scenario(tmp_path: Path) -> None:
    def stop(_result: CellResult) -> None:
        raise RuntimeError("stopped")

    swept([1], tmp_path)
    with pytest.raises(RuntimeError, match="stopped"):
        swept([2], tmp_path, done=stop)
    kept = msgspec.json.decode((tmp_path / "sweep.json").read_bytes())["scenario"]
    assert kept["verifiers"]["count"] == 2


def test_names_beyond_what_file_systems_take_are_shortened(tmp_path: Path) -> None:
    assert len(cell_file(tmp_path, {"name": "\u540d" * 90}).name.encode()) < 255
    assert cell_file(tmp_path, {"name": "a/b"}) != cell_file(tmp_path, {"name": "a_b"})


def test_whole_tables_can_be_varied(tmp_path: Path) -> None:
    policies = ["everyone", {"policy": "at-most", "sessions": 3}]
    cells = [({"drafters.admit": policy}, star(drafters={"admit": policy})) for policy in policies]
    for _ in range(2):
        results = sweep(cells, tmp_path, seeds=1)
        assert [result.cell["drafters.admit"] for result in results] == policies
    assert set(pd.read_csv(tmp_path / "sweep.csv")["drafters.admit"]) == {"everyone", "at-most, sessions 3"}


def test_the_equations_are_left_out_where_they_do_not_apply() -> None:
    shared = star(devices={"host": {"sharing": "turns"}}, drafters={"device": "host"}, verifiers={"device": "host"})
    (result,) = sweep([({}, shared)], seeds=1)
    assert result.metrics
    assert result.analytic == {}


def test_tables_have_the_same_columns_whatever_the_cells_gave() -> None:
    """A star, a fleet that the equations do not know, a cell that fails, and N_max where it has no bound."""
    fleets: list[dict[str, Any]] = [{}, {"drafters": {"count": 2}}, {"profile": ""}, {"link": {"latency_s": 9.0}}]
    alone = [sweep([({"case": 1}, star(**tables))], seeds=1) for tables in fleets]
    failed = alone[2][0]
    assert failed.error
    assert len({tuple(table(cells).columns) for cells in alone}) == 1
    analytic = [f"analytic_{name}" for name in ANALYTIC]
    for cells in alone:
        assert set(cells[0].analytic) <= set(ANALYTIC)
        assert [name for name in wide_table(cells).columns if name.startswith("analytic_")] == analytic
    together = [result for cells in alone for result in cells]
    assert list(wide_table(together).columns) == list(wide_table(alone[0]).columns)


TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,{0},30\n1.0,20,{0}\n"
FILES: dict[str, tuple[dict[str, Any], Callable[[Path, int], object]]] = {
    "trace.csv": (
        {"workload": {"arrivals": {"process": "trace", "file": "trace.csv"}, "new_tokens": 96, "requests": 2}},
        lambda path, size: path.write_text(TRACE.format(size)),
    ),
    "signals.parquet": (
        {"acceptance": {"model": "signals", "file": "signals.parquet"}},
        lambda path, size: write_signals([[Token(size / 100, 0.1, 0.1)] * 9], path),
    ),
    "profile.json": (
        {"profile": "profile.json"},
        lambda path, size: write_profile(HardwareProfile("mine", StepTime(size / 100), StepTime(0.1)), path),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_changed_scenario_files_invalidate_old_results(name: str, tmp_path: Path) -> None:
    tables, put = FILES[name]
    named, results = tmp_path / name, []
    for size in (40, 40, 70):
        put(named, size)
        cells = [({}, make_scenario(TABLES | tables, base=tmp_path))]
        results.append(sweep(cells, tmp_path / "out", seeds=1)[0])
    first, again, changed = results
    assert (first.error, changed.error) == ("", "")
    assert repr(again) == repr(first)
    assert repr(changed) == repr(sweep(cells, tmp_path / "fresh", seeds=1)[0])
    assert changed.metrics["throughput"] != first.metrics["throughput"]


def test_a_rerun_looks_at_prompts_and_models(tmp_path: Path) -> None:
    tiers = [{"first": 1, "model": str(tmp_path / "tier")}]
    sides = {"verifiers": {"model": str(tmp_path / "model")}, "drafters": {"tiers": tiers}}
    scenario = star(workload={"prompts": str(tmp_path / "prompts.jsonl")}, **sides)
    digests = [resume_digest(scenario)]
    for path in (tmp_path / "prompts.jsonl", tmp_path / "model" / "weights", tmp_path / "tier" / "weights"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("one")
        digests.append(resume_digest(scenario))
    assert len(set(digests)) == 4
    assert digests[-1] == resume_digest(scenario)
    assert digests[0] == scenario.digest()  # while nothing was there


def test_a_rerun_looks_at_rules_that_do_not_ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import msgspec\nclass Rule(msgspec.Struct, frozen=True, tag='mine', tag_field='policy'):\n    pass\n"
    (tmp_path / "mine_rule.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    rule = import_module("mine_rule").Rule()
    scenario = msgspec.structs.replace(SMALL, drafters=msgspec.structs.replace(SMALL.drafters, order=rule))
    before = resume_digest(scenario)
    (tmp_path / "mine_rule.py").write_text(source + "# otherwise\n")
    assert resume_digest(scenario) != before


def test_a_sweep_samples_devices_where_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that were run without samples run again with them; not the other way round."""
    asked: list[bool] = []

    def serve(scenario: Scenario, power: bool) -> SimpleNamespace:
        asked.append(power)
        run = simulate(scenario)
        gpu = DeviceCurve("H100", (0.0, 1e6), (0.0, 3e8), stations=("drafter",))
        devices = (gpu,) if power else ()
        return SimpleNamespace(
            run=msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, devices=devices))
        )

    monkeypatch.setattr("specfleet.engine.launch.serve.serve", serve)
    (plain,) = swept([1], tmp_path, world="engine")
    for power in (True, False):
        (sampled,) = swept([1], tmp_path, world="engine", power=power)
        assert sampled.metrics["measured_drafter_power_w"].value == pytest.approx(300.0)
    assert asked == [False, True]
    assert "measured_drafter_power_w" not in plain.metrics


def test_a_line_without_drafters_is_no_speculation() -> None:
    rows = [{"verifiers.count": n, "drafters.count": count, "world": "sim", "basis": "", "quantity": "throughput",
             "value": 1.0 + n + count, "low": math.nan, "high": math.nan, "unit": "tokens/s"}
            for n in (1, 2) for count in (0, 1)]  # fmt: skip
    drawn = sweep_figure(pd.DataFrame(rows))
    assert set(drawn.rows.line) == {"no speculation", "1 drafter"}
