"""Run files of AMUSD's authors: what greedy, sd and amusd runs of one prompt measured, and what their clocks leave out.

Their program logs the time of each draft step and each verification, the tokens that a verification committed (the
target's own included), the total time, and the power of each GPU. Their greedy and amusd totals begin before the
target's pass over the prompt, their sd total after both prefills were launched. A step's clock stops when its kernels
are launched, where nothing waits for their outcome. The first pass of a process is longer than later ones.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.calibration.readers.laws import rounds_to
from specfleet.fleet.acceptance.tokens import Agreement
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import named, read_json
from specfleet.fleet.times.effects import Power, Watts
from specfleet.fleet.times.step_time import Seconds

COLD_S = (0.2, 1.0)  # assumed of the first pass of a process on a GPU: libraries and some hundred kernels are loaded
GPUS = 2  # that the authors count: the target's and, in amusd runs, the drafter's
Span = Annotated[float, Meta(gt=0, le=1e9)]  # seconds that something took


class GpuSample(msgspec.Struct, frozen=True):
    """State of all GPUs at one moment of the monitor's own clock, which begins after the run does."""

    timestamp: Seconds
    gpu_powers: Annotated[list[Watts], Meta(min_length=GPUS)]


class AmusdRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: times in seconds; `accepted_tokens` a verification, the target's own token included."""

    total_time: Span
    tokens_generated: Annotated[int, Meta(ge=2, le=10**6)]
    time_per_token: Seconds = 0.0  # zero where it is not reported
    token_times: list[Span] = []
    draft_times: list[Span] = []
    verify_times: list[Span] = []
    accepted_tokens: list[Annotated[int, Meta(ge=1, le=1024)]] = []
    gpustats: Annotated[list[GpuSample], Meta(min_length=2)]

    @property
    def draft_s(self) -> float:
        """Mean time of a draft step, the first one, which waits for the prefill, left out."""
        return float(np.mean(self.draft_times[1:]))

    @property
    def verify_s(self) -> float:
        """Mean time of a verification, the first one left out."""
        return float(np.mean(self.verify_times[1:]))

    @property
    def start_up_s(self) -> float:
        """How much longer than later ones the first draft step and the first verification took."""
        return self.draft_times[0] - self.draft_s + self.verify_times[0] - self.verify_s

    @property
    def committed_a_verification(self) -> float:
        """Mean of the accepted tokens and the target's own: what the authors call accepted."""
        return float(np.mean(self.accepted_tokens))

    @property
    def gap_s(self) -> float:
        """What a round takes beside its steps: the search for the end, and the roll-back."""
        beside_s = self.total_time - float(np.sum(self.draft_times)) - float(np.sum(self.verify_times))
        return max(beside_s, 0.0) / len(self.verify_times)

    @property
    def interval_s(self) -> float:
        """Time between two looks of the monitor of the GPUs."""
        return float(np.median(np.diff([look.timestamp for look in self.gpustats])))

    @property
    def monitor_delay_s(self) -> tuple[float, float]:
        """Bounds of how long after the run's clock its monitor's clock began.

        The monitor looks once an interval until the run ends; what the total is longer than that, its start takes.
        """
        after_s = self.total_time - self.gpustats[-1].timestamp
        return after_s - self.interval_s, after_s

    def power_w(self, gpu: int) -> float:
        """Mean power of a GPU over the run."""
        return float(np.mean([look.gpu_powers[gpu] for look in self.gpustats]))

    @property
    def depth(self) -> int:
        """The depth of an sd run's drafts, in tokens.

        Its fullest round commits all drafts and the bonus token; where no round was full, draft steps a round show it.
        """
        rounds, fullest = len(self.verify_times), max(self.accepted_tokens)
        extra = sum(k == fullest for k in self.accepted_tokens)
        if len(self.draft_times) <= (fullest - 1) * rounds + extra:
            return max(fullest - 1, 1)
        return max(fullest - 1, round(len(self.draft_times) / rounds))

    @property
    def agreement(self) -> Agreement:
        """Where drafter and target agree, place by place, as far as the sd run shows it.

        A round that commits k tokens shows k - 1 agreements and then a mismatch; a full round shows as many agreements
        as it drafted, and nothing about the place of the bonus token. Agreement comes in runs, and an unknown place
        follows a run of agreements: it agrees as often as those places that follow agreements at half the depth and
        more.
        """
        depth = self.depth
        text = "".join("1" * (k - 1) + ("?" if k == depth + 1 else "0") for k in self.accepted_tokens)
        reached = [(k - 1 - depth // 2, k <= depth) for k in self.accepted_tokens if k > depth // 2]
        agreed, failed = sum(agreements for agreements, _ in reached), sum(fails for _, fails in reached)
        return Agreement(sessions=(text,), unknown=agreed / (agreed + failed) if agreed else 1.0)

    @property
    def catch_up_s(self) -> float:
        """What a draft after full acceptance takes longer.

        The authors' drafter feeds its own last token by a step of its own then: the run has as many more draft steps.
        """
        full = self.depth + 1
        after_full = sum(k == full for k in self.accepted_tokens[:-1])
        more = len(self.draft_times) - self.depth * len(self.verify_times)
        return self.draft_s * more / after_full if after_full and more > 0 else 0.0

    @property
    def prefills_s(self) -> tuple[float, float]:
        """The prefill times of drafter and target, in seconds, as far as an sd run shows them.

        Its clock begins once both prefills are launched, which takes as long as a step of each; its first steps then
        wait for the rest. The two share that time as their steps do.
        """
        both_s = self.draft_s + self.verify_s
        prefill_s = both_s + max(self.start_up_s, 0.0)
        return prefill_s * self.draft_s / both_s, prefill_s * self.verify_s / both_s


class AmusdEntry(msgspec.Struct, frozen=True):
    """A run of the file, and by which strategy; other fields are left alone."""

    strategy: Literal["greedy", "sd", "amusd"]
    metrics: AmusdRun


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


class Sample(msgspec.Struct, frozen=True):
    """The runs of one prompt, by strategy; the first answers of their processes."""

    greedy: AmusdRun
    sd: AmusdRun
    amusd: AmusdRun

    @property
    def powers(self) -> Power:
        """The powers by activity: idle and verification from the greedy run, drafting from the sd run.

        The sd run's GPU drafts for the share of its draft steps in the total time; for the rest it verifies.
        """
        sd, idle_w, verify_w = self.sd, self.greedy.power_w(1), self.greedy.power_w(0)
        draft_share = len(sd.draft_times) * sd.draft_s / sd.total_time
        draft_w = (sd.power_w(0) - (1 - draft_share) * verify_w) / draft_share
        return Power(idle_w=idle_w, draft_w=max(draft_w, 0.0), verify_w=verify_w)

    @property
    def first_pass_s(self) -> float:
        """How long the first pass of a process takes, by the amusd run's first verification.

        It waits for the target's prefill, which its own first pass launched before that clock began, and then for two
        passes of the drafter over the prompt, of which the first is the first one of its process.
        """
        return max(self._waited_s - self.sd.prefills_s[0], self.sd.verify_s)

    @property
    def _service_s(self) -> float:
        """A verification that waits for no drafts: as sd's, which never do, and no longer than it was."""
        return min(self.sd.verify_s, self.amusd.verify_s)

    @property
    def _waited_s(self) -> float:
        """How long the first verification waited for prefills: its time less its drafts' and its own service."""
        amusd = self.amusd
        return max(amusd.verify_times[0] - sum(amusd.draft_times[:2]) - self._service_s, 0.0)

    @property
    def own_steps(self) -> OwnSteps:
        """The step times of an amusd run, with what happens between the steps.

        The target's and the drafter's loop last equally long, from the drafter's first step on: what the drafter's
        steps are shorter than that in sum lies between them. A verification of no drafts is a greedy token: its clock
        stops when its kernels are launched, so the wait for them lies between it and the next.
        """
        sd, amusd = self.sd, self.amusd
        verify_s, before_s = self._service_s, self.first_pass_s
        gap, alone_s = sd.gap_s, self.token_s(before_s)
        verifies = zip(amusd.accepted_tokens[1:], amusd.verify_times[1:], strict=False)
        alone = np.mean([tokens == 1 and time_s < alone_s for tokens, time_s in verifies])
        between_s = gap + float(alone) * self.token_wait_s(before_s)
        period_s = amusd.verify_s + between_s
        loop_s = period_s * (len(amusd.verify_times) - 1) + sum(amusd.draft_times[:2]) + verify_s
        drafted_s = float(np.sum(amusd.draft_times)) + amusd.draft_s / 2  # the last one is cut off anywhere
        whole = 2 * drafted_s > loop_s  # else not all drafts are in the record
        draft_gap_s = max(loop_s - drafted_s, 0.0) / len(amusd.draft_times) if whole else 0.0
        within_s = self._waited_s + max(amusd.draft_times[0] - amusd.draft_s, 0.0)
        return OwnSteps(amusd.draft_s + draft_gap_s, verify_s + gap, min(alone_s + gap, verify_s), before_s, within_s)

    def token_wait_s(self, start_up_s: float) -> float:
        """Return how long a greedy token is waited for after its clock stopped."""
        greedy = self.greedy
        beside_s = greedy.total_time - float(np.sum(greedy.token_times)) - start_up_s
        return max(beside_s, 0.0) / len(greedy.token_times)

    def token_s(self, start_up_s: float) -> float:
        """Return the time of a verification without drafts: that of a greedy token."""
        return float(np.mean(self.greedy.token_times[1:])) + self.token_wait_s(start_up_s)

    @property
    def launched_before_s(self) -> float:
        """How long the prefills of the sd run were launched before its clock began, by the monitor's clock.

        The monitor starts equally long before the greedy run's clock as before that launch. What the looks leave open
        is `COLD_S`; the middle of it counts.
        """
        of_greedy, of_sd = self.greedy.monitor_delay_s, self.sd.monitor_delay_s
        low, high = of_greedy[0] - of_sd[1], of_greedy[1] - of_sd[0]
        return float(np.mean(np.clip(COLD_S, low, high)))

    @property
    def greedy_by_monitor_s(self) -> float:
        """How long the greedy run took by the monitor's clock, with the delay from the other two runs.

        The sd run's clock begins later than the others', by the launch of its prefills: as long as the first pass of
        the amusd run's processes.
        """
        greedy, launch_s = self.greedy, self.first_pass_s
        of_amusd, of_sd = self.amusd.monitor_delay_s, self.sd.monitor_delay_s
        low, high = max(of_amusd[0], of_sd[0] + launch_s), min(of_amusd[1], of_sd[1] + launch_s)
        low, high = (low, high) if low <= high else of_amusd
        ended_s = greedy.gpustats[-1].timestamp + greedy.interval_s / 2 + (low + high) / 2
        return max(ended_s, float(np.sum(greedy.token_times)))


def read_sample(path: Path) -> Sample:
    """Read the runs of one prompt; InputError, naming file and entry, if the file is not of that form."""
    origin = named(path, "--trace")
    entries = read_json(path, "--trace")
    if not isinstance(entries, list):
        raise InputError(f"{origin}: needs a list of runs; holds {type(entries).__name__}")
    runs = [_entry(f"{origin}: entry {number}", entry) for number, entry in enumerate(entries)]
    if sorted(strategy for strategy, _ in runs) != sorted(Sample.__struct_fields__):
        held = ", ".join(strategy for strategy, _ in runs) or "none"
        raise InputError(f"{origin}: holds the runs {held}; needs greedy, sd and amusd of one sample")
    return Sample(**dict(runs))


def _entry(origin: str, entry: object) -> tuple[str, AmusdRun]:
    made = convert(entry, AmusdEntry, origin)
    strategy, measured = made.strategy, made.metrics
    enough = len(measured.token_times) if strategy == "greedy" else min(
        len(measured.draft_times), len(measured.verify_times), len(measured.accepted_tokens)
    )  # fmt: skip
    if enough < 2:
        raise InputError(f"{origin} ({strategy}) has {enough} timed steps; 2 at least")
    longest_s = max([*measured.token_times, *measured.draft_times, *measured.verify_times])
    if measured.total_time <= longest_s:
        raise InputError(f"{origin} ({strategy}): total_time = {measured.total_time}; a step took {longest_s}")
    rounds_to(
        f"{origin} ({strategy})", "time_per_token", measured.time_per_token or None,
        "total_time / tokens_generated", measured.total_time / measured.tokens_generated,
    )  # fmt: skip
    return strategy, measured
