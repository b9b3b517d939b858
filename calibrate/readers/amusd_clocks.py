"""What the clocks of AMUSD's program leave out, put together from what they do show: start-up, gaps, monitor's delay.

Their greedy and amusd totals begin before the target's pass over the prompt, their sd total after both prefills were
launched. A step's clock stops when its kernels are launched, where nothing waits for their outcome. The first pass of
a process is longer than later ones, since libraries and kernels are loaded in it; each process pays that for itself.
"""

import msgspec
import numpy as np

from specfleet.calibration.readers.amusd import AmusdRun, Sample, prefills_of

COLD_S = (0.2, 1.0)  # assumed of the first pass of a process on a GPU: libraries and some hundred kernels are loaded


class OwnSteps(msgspec.Struct, frozen=True):
    """An amusd run by its own step times, all in seconds.

    `draft_s`: from one draft to the next. `verify_s`: from one verification to the next, if it waits for no drafts.
    `alone_s`: the same without a draft to verify. `before_s`: the target's start-up, before the first verification's
    clock begins. `within_s`: the drafter's, within the first verification.
    """

    draft_s: float
    verify_s: float
    alone_s: float
    before_s: float
    within_s: float


def gap_s(sd: AmusdRun) -> float:
    """Return what a round of an sd run takes beside its steps: the search for the end, and the roll-back."""
    beside_s = sd.total_time - float(np.sum(sd.draft_times)) - float(np.sum(sd.verify_times))
    return max(beside_s, 0.0) / len(sd.verify_times)


def first_pass_s(sample: Sample) -> float:
    """Return how long the first pass of a process takes, by the amusd run's first verification.

    It waits for the target's prefill, which its own first pass launched before that clock began, and then for two
    passes of the drafter over the prompt, of which the first is the first one of its process. In a process that has
    answered before, launching is as quick as in any step, and the prefills explain the wait.
    """
    sd = sample["sd"]
    draft_prefill_s, verify_prefill_s = prefills_of(sd)
    waited_s = _waited_s(sample)
    if waited_s <= verify_prefill_s + 2 * draft_prefill_s:
        return sd.verify_s
    return max(waited_s - draft_prefill_s, sd.verify_s)


def _service_s(sample: Sample) -> float:
    """Return a verification that waits for no drafts: as sd's, which never do, and no longer than it was."""
    return min(sample["sd"].verify_s, sample["amusd"].verify_s)


def _waited_s(sample: Sample) -> float:
    """Return how long the first verification waited for prefills: its time less its drafts' and its own service."""
    amusd = sample["amusd"]
    return max(amusd.verify_times[0] - sum(amusd.draft_times[:2]) - _service_s(sample), 0.0)


def own_steps(sample: Sample) -> OwnSteps:
    """Return the step times of an amusd run, with what happens between the steps.

    The target's and the drafter's loop last equally long, from the drafter's first step on: what the drafter's steps
    are shorter than that in sum lies between them. A verification of no drafts is a greedy token: its clock stops
    when its kernels are launched, so the wait for them lies between it and the next.
    """
    sd, amusd = sample["sd"], sample["amusd"]
    verify_s, before_s = _service_s(sample), first_pass_s(sample)
    gap, alone_s = gap_s(sd), token_s(sample, before_s)
    verifies = zip(amusd.accepted_tokens[1:], amusd.verify_times[1:], strict=False)
    alone = np.mean([tokens == 1 and time_s < alone_s for tokens, time_s in verifies])
    between_s = gap + float(alone) * token_wait_s(sample, before_s)
    period_s = amusd.verify_s + between_s
    loop_s = period_s * (len(amusd.verify_times) - 1) + sum(amusd.draft_times[:2]) + verify_s
    drafted_s = float(np.sum(amusd.draft_times)) + amusd.draft_s / 2  # the last one is cut off anywhere
    whole = 2 * drafted_s > loop_s  # else not all drafts are in the record
    draft_gap_s = max(loop_s - drafted_s, 0.0) / len(amusd.draft_times) if whole else 0.0
    within_s = _waited_s(sample) + max(amusd.draft_times[0] - amusd.draft_s, 0.0)
    return OwnSteps(amusd.draft_s + draft_gap_s, verify_s + gap, min(alone_s + gap, verify_s), before_s, within_s)


def token_wait_s(sample: Sample, start_up_s: float) -> float:
    """Return how long a greedy token is waited for after its clock stopped; 0 without a greedy run."""
    if "greedy" not in sample:
        return 0.0
    greedy = sample["greedy"]
    beside_s = greedy.total_time - float(np.sum(greedy.token_times)) - start_up_s
    return max(beside_s, 0.0) / len(greedy.token_times)


def token_s(sample: Sample, start_up_s: float) -> float:
    """Return the time of a verification without drafts: that of a greedy token; sd's where there is no greedy run."""
    if "greedy" not in sample:
        return sample["sd"].verify_s
    return float(np.mean(sample["greedy"].token_times[1:])) + token_wait_s(sample, start_up_s)


def interval_s(run: AmusdRun) -> float | None:
    """Return the time between two looks of a run's GPU monitor; None where it has fewer than two."""
    stamps = [look.timestamp for look in run.gpustats]
    return float(np.median(np.diff(stamps))) if len(stamps) > 1 else None


def monitor_delay_s(run: AmusdRun) -> tuple[float, float] | None:
    """Return bounds of how long after a run's clock its monitor's clock began; None without looks at the GPUs.

    The monitor looks once an interval until the run ends, so the end lies within an interval of its last look; what
    the total is longer than that is the time in which the monitor's process starts.
    """
    interval = interval_s(run)
    if interval is None:
        return None
    after_s = run.total_time - run.gpustats[-1].timestamp
    return after_s - interval, after_s


def launched_before_s(sample: Sample, cold: bool) -> float:
    """Return how long the prefills of the sd run were launched before its clock began, by the monitor's clock.

    The monitor starts equally long before the greedy run's clock as before that launch. What the looks leave open is
    `COLD_S` in the first answer of a process (`cold`), else nothing; the middle of it counts. Zero where there is no
    greedy run or no monitor.
    """
    if "greedy" not in sample:
        return 0.0
    greedy, sd = sample["greedy"], sample["sd"]
    of_greedy, of_sd = monitor_delay_s(greedy), monitor_delay_s(sd)
    if of_greedy is None or of_sd is None:
        return 0.0
    shortest_s, longest_s = COLD_S if cold else (0.0, 0.0)
    low, high = of_greedy[0] - of_sd[1], of_greedy[1] - of_sd[0]
    return (float(np.clip(shortest_s, low, high)) + float(np.clip(longest_s, low, high))) / 2 if low < high else 0.0


def greedy_by_monitor_s(sample: Sample) -> float | None:
    """Return how long the greedy run took by the monitor's clock, with the delay from the other two runs.

    The sd run's clock begins later than the others', by the launch of its prefills: as long as the first pass of the
    amusd run's processes. None without an amusd run or without looks at the GPUs.
    """
    greedy = sample["greedy"]
    if "amusd" not in sample or (interval := interval_s(greedy)) is None:
        return None
    of_amusd, of_sd = monitor_delay_s(sample["amusd"]), monitor_delay_s(sample["sd"])
    if of_amusd is None:
        return None
    low, high = of_amusd
    if of_sd is not None:
        launch_s = first_pass_s(sample)
        of_both = max(low, of_sd[0] + launch_s), min(high, of_sd[1] + launch_s)
        low, high = of_both if of_both[0] <= of_both[1] else of_amusd
    ended_s = greedy.gpustats[-1].timestamp + interval / 2 + (low + high) / 2
    return max(ended_s, float(np.sum(greedy.token_times)))
