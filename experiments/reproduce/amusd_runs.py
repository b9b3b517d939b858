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

GPUS = 2  # that the authors count: the target's and, in amusd runs, the drafter's
Span = Annotated[float, Meta(gt=0, le=1e9)]  # seconds that something took


class GpuSample(msgspec.Struct, frozen=True):
    """State of all GPUs at one moment."""

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

    def token_s(self, start_up_s: float) -> float:
        """Return the time of a verification without drafts: that of a greedy token, and the wait for it.

        Its clock stops when its kernels are launched.
        """
        greedy = self.greedy
        beside_s = greedy.total_time - float(np.sum(greedy.token_times)) - start_up_s
        return float(np.mean(greedy.token_times[1:])) + max(beside_s, 0.0) / len(greedy.token_times)


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
