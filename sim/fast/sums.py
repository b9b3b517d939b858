"""What metrics need of a run without records, summed in the loop in constant memory.

`totals` and `busy` have a row for each of so many moments, at first one. If all rows are full, neighbours are added,
and each row has twice as many moments. Sums over a stretch of time are therefore exact up to a row at either end.
Percentiles come from samples: of each kind all values up to the room of its sample, then an even share of them.
"""

from typing import NamedTuple

from specfleet.sim.fast.compiled import compiled, compiled_inline
from specfleet.sim.fast.events import Array, Record

# columns of `totals`, each for its moments: time of the last one; tokens and commits of targets; requests by parts
TIME_S, COMMITTED, COMMITS, CARRIED, JOINED, CLOSED = range(6)
# requests that end: times, cycles of streams (those that have one), those that meet their goals, and middles of texts
ENDED, TTFT_S, TPOT_S, TPOTS, LATENCY_S, CYCLES, CYCLE_S, GOOD, GOOD_CYCLES, MIDDLE = range(6, 16)
# verifications: drafted and accepted tokens, tokens that they commit, time
VERIFIED, OFFERED, ACCEPTED, GAINED, VERIFY_S = range(16, 21)
# rounds as their drafts end, and as their streams ask again
DRAFTED, SERVICE_S, GAP_S, TOKENS, WAITS, WAIT_S = range(21, 27)
RETURNS, RETURN_S, TRIPS, TRIP_S, ROUND_S = range(27, 32)
# steps of targets that draft themselves, by kind
STEP_S, DRAFT_STEPS, DRAFT_STEP_S, VERIFY_STEP_S = range(32, 36)
# prompts as they begin: those that do, tokens of these, and those in a prefix cache
BEGUN, ASKED, HITS = range(36, 39)
COLUMNS = 39

SAMPLED = TTFT, TPOT, LATENCY, WAIT, ROUND = 0, 1, 2, 3, 4  # kinds of samples
OUTSIDE = 3  # place in `limits_s`
WORK = DRAFTS, PROMPTS, OTHERS = 0, 1, 2  # kinds of steps in `busy`: drafts, prompts of drafters on targets, the rest
GOLDEN = -7046029254386353131  # 2**64 over the golden ratio: multiples of it are spread evenly


class Sums(NamedTuple):
    """Tables of sums and samples, and the state of each.

    `limits_s`: goals of the times of requests, and what those take outside their target's steps.
    """

    totals: Array
    busy: Array  # time of the last moment; of each station, its time by kind of work
    samples: Array
    states: Array  # of `totals`, `busy`, and of each kind of sample
    limits_s: Array


@compiled
def begin_row(table: Array, state: Record) -> None:
    """Begin the next row, after the sums of neighbours if all are full."""
    state.row, state.moments = state.row + 1, 0
    if state.row == len(table):
        half = len(table) // 2
        for row in range(half):
            table[row, 0] = table[2 * row + 1, 0]
            for column in range(1, table.shape[1]):
                table[row, column] = table[2 * row, column] + table[2 * row + 1, column]
        for row in range(half, len(table)):
            for column in range(table.shape[1]):
                table[row, column] = 0.0
        state.row, state.most = half, 2 * state.most


@compiled_inline
def row_at(table: Array, state: Record, now_s: float) -> int:
    """Return the row of the present moment."""
    if state.now_s != now_s or state.row < 0:
        if state.row < 0 or state.moments == state.most:
            begin_row(table, state)
        state.now_s, state.moments = now_s, state.moments + 1
        table[state.row, 0] = now_s
    return int(state.row)


@compiled
def is_kept(number: int, halvings: int) -> bool:
    """Whether the value of that number belongs to the sample after so many halvings of it."""
    return halvings == 0 or (number * GOLDEN) >> (64 - halvings) == 0


@compiled_inline
def sample(sums: Sums, kind: int, time_s: float, value: float) -> None:
    """Add a value to a sample."""
    values, state = sums.samples[kind], sums.states[2 + kind]
    state.moments += 1
    if not is_kept(state.moments, state.most):
        return
    if state.row == len(values):
        state.most, kept = state.most + 1, 0
        for place in range(len(values)):
            if is_kept(values[place].number, state.most):
                values[kept] = values[place]
                kept += 1
        state.row = kept
        if not is_kept(state.moments, state.most):
            return
    one = values[state.row]
    one.time_s, one.value, one.number = time_s, value, state.moments
    state.row += 1


@compiled_inline
def add_commit(sums: Sums, now_s: float, tokens: int, of: int) -> None:
    """Count tokens that a target commits to an answer of so many."""
    total = sums.totals[row_at(sums.totals, sums.states[0], now_s)]
    total[COMMITTED] += tokens
    total[COMMITS] += 1
    total[CARRIED] += tokens / of


@compiled_inline
def add_verified(sums: Sums, target: Record, now_s: float, offered: int, accepted: int, gained: int) -> None:
    """Count the verification of a draft."""
    total = sums.totals[row_at(sums.totals, sums.states[0], now_s)]
    total[VERIFIED] += 1
    total[OFFERED] += offered
    total[ACCEPTED] += accepted
    total[GAINED] += gained
    total[VERIFY_S] += target.duration_s - target.ending_s


@compiled_inline
def add_round(sums: Sums, station: Record, now_s: float, tokens: int, wait_s: float) -> None:
    """Count a round as its draft ends at a station; `wait_s` is negative where drafts are not asked for."""
    total = sums.totals[row_at(sums.totals, sums.states[0], now_s)]
    total[DRAFTED] += 1
    total[TOKENS] += tokens
    total[SERVICE_S] += station.duration_s - station.ending_s
    total[GAP_S] += station.idle_gap_s
    if wait_s >= 0:
        total[WAITS] += 1
        total[WAIT_S] += wait_s
        sample(sums, WAIT, now_s, wait_s)


@compiled_inline
def add_return(sums: Sums, row: Record, now_s: float) -> None:
    """Count a round as its stream asks for the next draft of its request."""
    total = sums.totals[row_at(sums.totals, sums.states[0], now_s)]
    total[RETURNS] += 1
    total[RETURN_S] += now_s - row.drafted_s
    total[ROUND_S] += now_s - row.asked_s
    if row.at_target_s >= 0:
        total[TRIPS] += 1
        total[TRIP_S] += now_s - row.drafted_s - row.at_target_s
    sample(sums, ROUND, now_s, now_s - row.asked_s)


@compiled_inline
def add_request(sums: Sums, row: Record, text: Record, ended_s: float, streams: int) -> None:
    """Count a request as its last token leaves; `streams`: of a closed loop, else 0."""
    tokens = text.goal - text.prompt
    total = sums.totals[row_at(sums.totals, sums.states[0], ended_s)]
    asked_s = row.joined_s - sums.limits_s[OUTSIDE]
    ttft_s, latency_s = row.first_s - asked_s, ended_s - asked_s
    is_good = not (ttft_s > sums.limits_s[TTFT] or latency_s > sums.limits_s[LATENCY])
    total[ENDED] += 1
    total[TTFT_S] += ttft_s
    total[LATENCY_S] += latency_s
    total[MIDDLE] += text.prompt + tokens / 2
    sample(sums, TTFT, ended_s, ttft_s)
    sample(sums, LATENCY, ended_s, latency_s)
    if tokens > 1:
        tpot_s = (ended_s - row.first_s) / (tokens - 1)
        is_good = is_good and not tpot_s > sums.limits_s[TPOT]
        total[TPOTS] += 1
        total[TPOT_S] += tpot_s
        sample(sums, TPOT, ended_s, tpot_s)
    total[GOOD] += is_good
    if streams > 0 and (row.ended_s >= 0 or streams == 1):
        total[CYCLES] += 1
        total[CYCLE_S] += ended_s - (row.ended_s if row.ended_s >= 0 else row.joined_s)
        total[GOOD_CYCLES] += is_good
    row.ended_s = ended_s


@compiled_inline
def add_prompt(sums: Sums, now_s: float, prompt: int, hits: int) -> None:
    """Count a request as its first step begins."""
    total = sums.totals[row_at(sums.totals, sums.states[0], now_s)]
    total[BEGUN] += 1
    total[ASKED] += prompt
    total[HITS] += hits


@compiled_inline
def add_step(sums: Sums, station: Record, here: int, now_s: float, work: int, is_verification: bool) -> None:
    """Count a step that ends."""
    busy = sums.busy[row_at(sums.busy, sums.states[1], now_s)]
    busy[1 + len(WORK) * here + work] += now_s - station.begun_s
    duration_s = station.duration_s - station.ending_s
    total = sums.totals[row_at(sums.totals, sums.states[0], now_s)]
    total[STEP_S] += duration_s
    if work == DRAFTS:
        total[DRAFT_STEPS] += 1
        total[DRAFT_STEP_S] += duration_s
    elif is_verification:
        total[VERIFY_STEP_S] += duration_s
