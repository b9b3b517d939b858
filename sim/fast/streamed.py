"""The tables of metrics of a long simulation, from its sums and its beginning."""

import numpy as np

from specfleet.fleet.records.columns import Series, Table, Words, words_of
from specfleet.fleet.records.metrics.findings import Findings
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.fast import sums as of
from specfleet.sim.fast.events import Array
from specfleet.sim.fast.serving_arrays import ServingArrays
from specfleet.sim.fast.table import station_names

KINDS_OF_WORK = ["draft", "draft_prefill", "verify"]  # by their numbers in `sums.py`


def streamed_findings(fleet: Fleet, serving: ServingArrays, beginning: Table) -> Findings:
    """Return the findings of a finished simulation; `beginning`: its first rows."""
    totals = serving.sums.totals[: serving.sums.states[0]["row"] + 1]
    time_s, first_done_s = totals[:, of.TIME_S], float(serving.clocks["first_done_s"][0])
    drafted, sharing = fleet.drafters.count > 0, serving.sharing
    opened_s = serving.texts["opens_s"][... if sharing is None else sharing.firsts]
    end_s = first_done_s if fleet.streams else float(time_s[totals[:, of.COMMITS] > 0][-1])
    if fleet.measure.ends == "arrivals":
        end_s = float(serving.texts["opens_s"].max())

    def series(values: int, counts: int, kind: int | None = None) -> Series:
        if kind is None:
            return Series(totals[:, values], totals[:, counts])
        sample = serving.sums.samples[kind, : serving.sums.states[2 + kind]["row"]]
        return Series(totals[:, values], totals[:, counts], sample["time_s"], sample["value"])

    rounds = Table.of(
        drafted_s=time_s, verified_s=time_s, service_s=series(of.SERVICE_S, of.DRAFTED),
        draft_tokens=series(of.TOKENS, of.DRAFTED), idle_gap_s=series(of.GAP_S, of.DRAFTED),
        wait_s=series(of.WAIT_S, of.WAITS, of.WAIT), return_s=series(of.RETURN_S, of.RETURNS),
        communication_s=series(of.TRIP_S, of.TRIPS), verify_s=series(of.VERIFY_S, of.VERIFIED),
        round_s=series(of.ROUND_S, of.RETURNS, of.ROUND),
    )  # fmt: skip
    verified = Table.of(
        verified_s=time_s, draft_tokens=series(of.OFFERED, of.VERIFIED),
        acceptance_length=series(of.ACCEPTED, of.VERIFIED),
    )  # fmt: skip
    requests = Table.of(
        last_s=time_s, ttft_s=series(of.TTFT_S, of.ENDED, of.TTFT), tpot_s=series(of.TPOT_S, of.TPOTS, of.TPOT),
        latency_s=series(of.LATENCY_S, of.ENDED, of.LATENCY), good=series(of.GOOD, of.ENDED),
        middle=series(of.MIDDLE, of.ENDED), cycle_s=totals[:, of.CYCLE_S], all_cycles=totals[:, of.CYCLES],
        good_cycles=totals[:, of.GOOD_CYCLES], refused=np.zeros(len(time_s), dtype=bool),
    )  # fmt: skip
    return Findings(
        fleet=fleet,
        commits=_commits(totals),
        requests=requests,
        draft_steps=_busy(fleet, serving.sums, of.DRAFTS),
        other_steps=_busy(fleet, serving.sums, of.PROMPTS, of.OTHERS),
        end_s=end_s,
        rounds=rounds if drafted else None,
        verified=verified if drafted else None,
        rows=beginning,
        steps=_steps(totals),
        inside=Table.of(time_s=time_s, change=totals[:, of.JOINED] - totals[:, of.CLOSED]),
        prompts=Table.of(time_s=time_s, hits=series(of.HITS, of.BEGUN), tokens=series(of.ASKED, of.BEGUN)),
        opened_s=opened_s,
    )


def _commits(totals: Array) -> Table:
    """Return what verifications committed, and then what other steps did, in stretches of time."""
    gained, tokens = totals[:, of.GAINED], totals[:, of.COMMITTED]
    verified, commits, nothing = totals[:, of.VERIFIED], totals[:, of.COMMITS], np.zeros(len(totals))
    return Table.of(
        time_s=np.tile(totals[:, of.TIME_S], 2), kind=_words(["verify", "decode"], len(totals)),
        committed=Series(np.append(gained, tokens - gained), np.append(verified, commits - verified)),
        carried=np.append(nothing, totals[:, of.CARRIED]),
    )  # fmt: skip


def _steps(totals: Array) -> Table:
    """Return the time and the number of the steps by kind."""
    kinds = {
        "draft": totals[:, [of.DRAFT_STEP_S, of.DRAFT_STEPS]],
        "verify": totals[:, [of.VERIFY_STEP_S, of.VERIFIED]],
        "": totals[:, [of.STEP_S, of.VERIFIED]] - totals[:, [of.DRAFT_STEP_S, of.VERIFIED]],
    }
    kinds[""] = kinds[""] - kinds["verify"] * [1, 0]
    both = np.concatenate(list(kinds.values()))
    words = _words(list(kinds), len(totals))
    return Table.of(
        ended_s=np.tile(totals[:, of.TIME_S], 3), duration_s=Series(both[:, 0], both[:, 1]), kind=words, station=words
    )


def _busy(fleet: Fleet, sums: of.Sums, *works: int) -> Table:
    """Return steps of some kinds of work, each as long as those of its station in a stretch of time, at its end."""
    rows = sums.busy[: sums.states[1]["row"] + 1]
    lasted_s = rows[:, 1:].reshape(len(rows), -1, len(of.WORK))[:, :, list(works)]
    row, station, work = np.nonzero(lasted_s)
    return Table.of(
        station=words_of(station, station_names(fleet)), kind=words_of(np.array(works)[work], KINDS_OF_WORK),
        begun_s=rows[row, 0] - lasted_s[row, station, work], ended_s=rows[row, 0],
    )  # fmt: skip


def _words(words: list[str], rows: int) -> Words:
    """Return a column of so many rows for each word."""
    return words_of(np.repeat(np.arange(len(words)), rows), words)
