"""The progress of a watched fleet equals the tables of its records, however its rows are reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.tables import commits_of, verifications_of
from specfleet.fleet.records.progress import SPAN_S, Progress
from specfleet.fleet.records.recorder import ReportedRows
from specfleet.fleet.records.run import Run
from specfleet.fleet.records.schema import WIDTH
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star

SHORT = {"requests": 12, "prompt_tokens": 10, "new_tokens": 20}
FAST = {"draft": {"base_s": 0.1}, "verify": {"base_s": 0.4}}  # a run of less than a minute
KILL = {"what": "kill", "at_s": 100.0, "for_s": 60.0}
PATIENT = {"profile": {"decode": {"base_s": 4.0}}, "drafters": {"lease_s": 9.0}, "verifiers": {"patience_s": 8.0}}
KINDS = {
    "star": {},
    "several streams": {"verifiers": {"count": 1}, "workload": SHORT | {"streams": 3}},
    "router": {"drafters": {"count": 2, "route": "shortest-queue"}},
    "ahead": {"drafters": {"overlap": {"policy": "ahead", "least": 2}}},
    "drafts at the target": {"drafters": {"place": "target"}, "verifiers": {"count": 1, "max_num_seqs": 4}},
    "refusals": {"drafters": {"admit": {"policy": "at-most", "sessions": 1}}},
    "a drafter dies": PATIENT | {"faults": [KILL | {"node": "drafter"}]},
}


def progress_of(run: Run, station: str = "") -> Progress:
    """The progress of all stations, or of those with such names."""
    log, progress = log_of_run(run), Progress()
    rows = [log[place : place + WIDTH] for place in range(0, len(log), WIDTH)]
    kept = [value for row in rows if row[1].startswith(station) for value in row]
    progress.take(ReportedRows(float(rows[-1][0]), kept))
    return progress


@pytest.mark.parametrize("kind", KINDS)
def test_progress_equals_the_tables_of_a_run(kind: str) -> None:
    run = simulate(star(**({"workload": SHORT} | KINDS[kind])))
    progress = progress_of(run)
    assert progress.tokens == commits_of(run.columns()).committed.sum()
    assert progress.rounds == len(verifications_of(run.columns()).frame())
    assert (progress.goals, progress.waiting) == ({}, set())


def test_recent_rates_of_a_short_run_are_its_metrics() -> None:
    scenario = star(profile=FAST, measure={"warm_up_share": 0.0}, verifiers={"count": 1}, workload={"requests": 4})
    run = simulate(scenario)
    progress, measured = progress_of(run), measure(run)
    assert progress.time_s < SPAN_S
    names = ("throughput", "acceptance_rate", "load")
    assert progress.recent() == pytest.approx(tuple(measured[name].value for name in names), rel=0.01)


def test_older_rounds_do_not_count() -> None:
    progress = Progress()
    progress.commits.extend([(100.0, 60, 120, 120), (200.0, 30, 60, 15), (230.0, 12, 24, 6)])
    progress.steps.extend([(100.0, 90.0), (190.0, 170.0)])
    progress.drafters = {"drafter"}
    progress.take(ReportedRows(240.0, []))
    assert progress.recent() == pytest.approx((42 / SPAN_S, 0.25, 10 / SPAN_S))


RUN = simulate(star(workload=SHORT))


def test_a_drafter_alone_knows_its_drafts_and_sessions() -> None:
    progress, rows = progress_of(RUN, "drafter"), RUN.frame()
    drafts = rows[(rows.event == "done") & (rows.kind == "draft")]
    assert (progress.drafts, progress.tokens, progress.sessions) == (len(drafts), 0, set())


@given(pieces=st.lists(st.integers(1, 200), max_size=20))
def test_pieces_of_a_log_count_like_the_whole(pieces: list[int]) -> None:
    log, whole, growing, place = log_of_run(RUN), Progress(), Progress(), 0
    whole.take(ReportedRows(5.0, log))
    for piece in [*pieces, len(log)]:
        growing.take(ReportedRows(5.0, log[place : place + piece * WIDTH]))
        place += piece * WIDTH
    assert vars(growing) == vars(whole)
