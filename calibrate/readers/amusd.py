"""Reader of the AMUSD authors' run files: what greedy, sd and amusd runs of the same prompt measured.

Their program logs the time of each draft step and each verification, the tokens that a verification committed (the
target's own included), the total time, and the power of each GPU. What its clocks include stands at each use.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.calibration.readers.laws import rounds_to
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.acceptance.tokens import Agreement
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import named, read_json
from specfleet.fleet.times.effects import Power, Watts
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import Seconds, StepTime

GPUS = 2  # that the authors count: the target's and, in amusd runs, the drafter's
Span = Annotated[float, Meta(gt=0, le=1e9)]  # seconds that something took


class GpuSample(msgspec.Struct, frozen=True):
    """State of all GPUs at one moment of the monitor's own clock, which begins after the run does."""

    timestamp: Seconds
    gpu_powers: list[Watts]


class AmusdRun(msgspec.Struct, frozen=True):
    """One run: times in seconds; `accepted_tokens` a verification, the target's own token included."""

    total_time: Span
    tokens_generated: Annotated[int, Meta(ge=2, le=10**6)]
    time_per_token: Seconds = 0.0  # zero where it is not reported
    token_times: list[Span] = []
    draft_times: list[Span] = []
    verify_times: list[Span] = []
    accepted_tokens: list[Annotated[int, Meta(ge=1, le=1024)]] = []
    gpustats: list[GpuSample] = []

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

    def power_w(self, gpu: int) -> float | None:
        """Mean power of a GPU over the run, or None where it was not recorded."""
        powers = [sample.gpu_powers[gpu] for sample in self.gpustats if gpu < len(sample.gpu_powers)]
        return float(np.mean(powers)) if powers else None


class AmusdEntry(msgspec.Struct, frozen=True):
    """A run of the file: of which sample, by which strategy; other fields are left alone."""

    sample_index: int
    strategy: Literal["greedy", "sd", "amusd"]
    metrics: AmusdRun


Sample = dict[str, AmusdRun]


def read_runs(path: Path, what: str = "--trace") -> dict[int, Sample]:
    """Read the runs of each sample, by strategy; `what` says in errors what the file is for.

    Raises InputError, naming file and entry, if the file is not of that form or if a sample lacks its sd run.
    """
    origin = named(path, what)
    entries = read_json(path, what)
    if not isinstance(entries, list):
        raise InputError(f"{origin}: needs a list of runs; holds {type(entries).__name__}")
    samples: dict[int, Sample] = {}
    for number, entry in enumerate(entries):
        index, strategy, measured = _entry(f"{origin}: entry {number}", entry)
        samples.setdefault(index, {})[strategy] = measured
    for index, sample in samples.items():
        if "sd" not in sample:
            raise InputError(f"{origin}: sample {index} has no run of sd, which shows where the models agree")
    if not samples:
        raise InputError(f"{origin}: holds no run")
    return samples


def _entry(origin: str, entry: Any) -> tuple[int, str, AmusdRun]:
    made = convert(entry, AmusdEntry, origin)
    index, strategy, measured = made.sample_index, made.strategy, made.metrics
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
    return index, strategy, measured


def depth_of(sd: AmusdRun) -> int:
    """Return the depth of an sd run's drafts, in tokens.

    Its fullest round commits all drafts and the bonus token; where no round was full, draft steps a round show it.
    """
    rounds, fullest = len(sd.verify_times), max(sd.accepted_tokens)
    extra = sum(k == fullest for k in sd.accepted_tokens)
    if len(sd.draft_times) <= (fullest - 1) * rounds + extra:
        return max(fullest - 1, 1)
    return max(fullest - 1, round(len(sd.draft_times) / rounds))


def agreement_of(sd: AmusdRun) -> Agreement:
    """Return where drafter and target agree, place by place, as far as the sd run shows it.

    A round that commits k tokens shows k - 1 agreements and then a mismatch; a full round shows as many agreements as
    it drafted, and nothing about the place of the bonus token. Agreement comes in runs, and an unknown place follows a
    run of agreements: it agrees as often as those places that follow agreements at half the depth and more.
    """
    depth = depth_of(sd)
    text = "".join("1" * (k - 1) + ("?" if k == depth + 1 else "0") for k in sd.accepted_tokens)
    reached = [(k - 1 - depth // 2, k <= depth) for k in sd.accepted_tokens if k > depth // 2]
    agreed, failed = sum(agreements for agreements, _ in reached), sum(fails for _, fails in reached)
    return Agreement(sessions=(text,), unknown=agreed / (agreed + failed) if agreed else 1.0)


def catch_up_s(sd: AmusdRun) -> float:
    """Return what a draft after full acceptance takes longer.

    The authors' drafter feeds its own last token by a step of its own then: the run has as many more draft steps.
    """
    full = depth_of(sd) + 1
    after_full = sum(k == full for k in sd.accepted_tokens[:-1])
    more = len(sd.draft_times) - depth_of(sd) * len(sd.verify_times)
    return sd.draft_s * more / after_full if after_full and more > 0 else 0.0


def prefills_of(sd: AmusdRun) -> tuple[float, float]:
    """Return the prefill times of drafter and target, in seconds, as far as an sd run shows them.

    Its clock begins once both prefills are launched, which takes as long as a step of each; its first steps then wait
    for the rest. The two share that time as their steps do.
    """
    both_s = sd.draft_s + sd.verify_s
    prefill_s = both_s + max(sd.start_up_s, 0.0)
    return prefill_s * sd.draft_s / both_s, prefill_s * sd.verify_s / both_s


def profile_of(name: str, source: str, draft_s: float, verify_s: float, **more: Any) -> HardwareProfile:
    """Build a profile from mean step times, in seconds; `source`: which run they are of."""
    return HardwareProfile(
        name=name,
        draft=StepTime(per_token_s=draft_s),
        verify=StepTime(base_s=verify_s),
        sources={"draft": source, "verify": source},
        **more,
    )


def powers_of(sample: Sample) -> Power | None:
    """Return the powers by activity: idle and verification from the greedy run, drafting from the sd run.

    The sd run's GPU drafts for the share of its draft steps in the total time; for the rest it verifies.
    """
    if "greedy" not in sample:
        return None
    sd = sample["sd"]
    idle_w, verify_w, mixed_w = sample["greedy"].power_w(1), sample["greedy"].power_w(0), sd.power_w(0)
    draft_share = len(sd.draft_times) * sd.draft_s / sd.total_time
    if idle_w is None or verify_w is None or mixed_w is None or draft_share <= 0:
        return None
    draft_w = (mixed_w - (1 - draft_share) * verify_w) / draft_share
    if draft_w < 0:
        return None  # a share of drafting that these powers contradict
    return Power(idle_w=idle_w, draft_w=draft_w, verify_w=verify_w)


def read_amusd(files: Sequence[Path]) -> Recording:
    """Read run files of the authors: acceptance and step times of their sd runs, decoding time of their greedy runs.

    Raises InputError as `read_runs`, and where the runs drafted at different depths.
    """
    samples = [sample for path in files for sample in read_runs(path, "import").values()]
    runs = [sample["sd"] for sample in samples]
    greedy = [sample["greedy"] for sample in samples if "greedy" in sample]
    depths = sorted({depth_of(run) for run in runs})
    names = ", ".join(map(str, files))
    if len(depths) > 1:
        raise InputError(f"{names}: sd runs at depth {depths[0]} and at depth {depths[1]}; give those of one depth")
    agreements = [agreement_of(run) for run in runs]
    draft_s, verify_s = _mean(run.draft_times[1:] for run in runs), _mean(run.verify_times[1:] for run in runs)
    prefills_s = np.mean([prefills_of(run) for run in runs], axis=0).tolist()
    decode_s = float(np.mean([_token_s(run) for run in greedy])) if greedy else verify_s
    profile = profile_of(
        "amusd",
        f"mean of the sd runs of {', '.join(path.name for path in files)}, the first step left out",
        draft_s,
        verify_s,
        decode=StepTime(base_s=decode_s),
        draft_prefill=StepTime(base_s=prefills_s[0]),
        verify_prefill=StepTime(base_s=prefills_s[1]),
        catch_up_s=float(np.mean([catch_up_s(run) for run in runs])),
        power=powers_of(samples[0]) if len(samples) == 1 else None,
    )
    committed = [k for run in runs for k in run.accepted_tokens]
    return Recording(
        format="AMUSD's run file (its sd runs)",
        acceptance=Agreement(
            sessions=tuple(text for agreement in agreements for text in agreement.sessions),
            unknown=float(np.mean([agreement.unknown for agreement in agreements])),
        ),
        depth=depths[0],
        rounds=len(committed),
        accepted=sum(committed) - len(committed),
        stated=_mean(run.accepted_tokens for run in runs),
        answer_tokens=round(float(np.mean([run.tokens_generated for run in runs]))),
        profile=profile,
        sources={
            "acceptance": f"where drafter and target agree, by {len(committed)} verifications (sd runs: {len(runs)})",
            "times": "mean steps of the sd runs; decoding is the greedy run's" if greedy else (
                "mean steps of the sd runs; without a greedy run, decoding is taken to be a verification"
            ),
        },
        notes=("the authors' accepted_tokens count the target's own token",),
    )  # fmt: skip


def _mean(parts: Iterable[Sequence[float]]) -> float:
    return float(np.mean(np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])))


def _token_s(greedy: AmusdRun) -> float:
    """Time of a token after the first; the clock of single ones stops when their kernels are launched."""
    return max(greedy.total_time - greedy.token_times[0], 0.0) / (greedy.tokens_generated - 1)
