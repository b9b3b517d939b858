"""vLLM's steps for Llama-3.1-8B on an H100, mechanism by mechanism: what predicts figure 1 of SpecDecode-Bench.

Passes are rooflines of the model's shape; what the host takes besides is put together from figure 4's shares of time.
"""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.specdecode_data import MATCHING, METHODS, Recorded
from experiments.reproduce.specdecode_printed import SHARES
from fleet.errors import InputError
from fleet.estimate.passes import Placed, roofline_of
from fleet.estimate.profile import placed_of
from fleet.times.profile import HardwareProfile
from fleet.times.roofline import Roofline
from fleet.times.step_time import StepTime
from sim.lockstep import Floats, Walks, prefills_s, rounds_s, walks_of

CAPTURED = (1, 2, 4, *range(8, 513, 8))  # tokens of the passes that vLLM captures as graphs, its default
SHARES_DEPTH = 3  # of figure 4's drafts
SHARES_SET = "CNN"
LONGEST = 8192  # tokens: answers that got there did not stop by themselves, and are not in the figure

Recordings = dict[tuple[str, str], Recorded]


class Fitted(NamedTuple):
    """What is fitted to InstructCoder's rows of figure 1.

    `sharpness`: of the target's roofline, see `Roofline`. `pass_s`: least time of a pass of the EAGLE-3 head, which the
    host launches. `matching`: factor of the authors' share of lookups that find something where nothing is accepted.
    """

    sharpness: float
    pass_s: float
    matching: float


class Line(NamedTuple):
    """Time in seconds of one row, and of each further one."""

    one_s: float
    further_s: float


class Answers(NamedTuple):
    """Requests of a set under a drafter at a depth: walks with it, and without."""

    speculative: Walks
    plain: Walks
    matching: float

    @classmethod
    def of(cls, recordings: Recordings, name: str, method: str, depth: int) -> "Answers":
        """Walk over the texts that ended by themselves; InputError where none did."""
        recorded = recordings[name, method]
        ended = recorded.only([number for number, text in enumerate(recorded.texts) if len(text) + 1 < LONGEST])
        if not ended.texts:
            raise InputError(
                f"--data: every answer of {name} by {method} has {LONGEST} tokens; needs one that is shorter"
            )
        walks = [walks_of(ended.texts, ended.prompts, each) for each in (depth, 0)]
        return cls(*walks, matching=1.0 if method == "EAGLE-3" else MATCHING[name])


class Passes(NamedTuple):
    """Rooflines: of a verification, of a target's prefill, of a draft of the head and of its prefill."""

    verify: Roofline
    prefill: Roofline
    draft: Roofline
    draft_prefill: Roofline

    @classmethod
    def of(cls, fitted: Fitted) -> "Passes":
        """Build them; only the target's sharpness is not the shipped device's."""
        target, head = placed_of("llama-3.1-8b@h100"), placed_of("eagle3-llama-3.1-8b@h100")
        sharp = _sharpened(target, fitted.sharpness)
        draft, draft_prefill = roofline_of(head, in_turn=True), roofline_of(head, every_logit=False)
        return cls(
            verify=roofline_of(sharp).padded_to(CAPTURED),
            prefill=roofline_of(sharp, every_logit=False),
            draft=msgspec.structs.replace(draft, host_s=fitted.pass_s),
            draft_prefill=msgspec.structs.replace(draft_prefill, host_s=fitted.pass_s),
        )


class Engine(NamedTuple):
    """The step times of each arm, by its drafter: "none", "n-gram", "EAGLE-3"."""

    profiles: dict[str, HardwareProfile]
    matching: float

    def tokens_per_s(self, answers: Answers, method: str, depth: int, batch: int) -> Floats:
        """Return a group's tokens a second for each copy, with a drafter, or without one ("none")."""
        walks = answers.plain if method == "none" else answers.speculative
        profile = self.profiles[method]
        share = self.matching * answers.matching if method == "n-gram" else 1.0
        round_s = _rounds_s(profile, walks, 0 if method == "none" else depth, share, batch)
        return walks.answers / (prefills_s(profile, walks.prompts, batch) + walks.of_requests(round_s))


def of_shares(recordings: Recordings) -> dict[str, Answers]:
    """Return the requests behind figure 4's shares, by drafter; plain decoding's are those of the lookups."""
    walked = {method: Answers.of(recordings, SHARES_SET, method, SHARES_DEPTH) for method in METHODS}
    return walked | {"none": walked["n-gram"]}


def engine_of(fitted: Fitted, requests: dict[str, Answers]) -> Engine:
    """Return the engine's times; the host's follow from figure 4's shares and the passes of its requests.

    Plain decoding's columns say what each row adds; the columns at batch 1 what a step takes with each drafter.
    """
    passes = Passes.of(fitted)
    bare = {method: _bare(passes, method) for method in SHARES}
    plain = _line(_beside(bare["none"], "none", fitted, requests, (2, 3)))
    profiles = {}
    for method, profile in bare.items():
        host = Line(_beside(profile, method, fitted, requests, (2, 3), (1,))[1], plain.further_s)
        draft = profile.draft
        if method == "n-gram":
            lookup = _line(_beside(profile, method, fitted, requests, (0,)))
            draft = StepTime(base_s=lookup.one_s, per_row_s=lookup.further_s)
        profiles[method] = msgspec.structs.replace(
            profile,
            draft=draft,
            verify=_with_host(profile.verify, host),
            verify_prefill=_with_host(profile.verify_prefill, host),
        )
    return Engine(profiles, fitted.matching)


def host_lines(engine: Engine) -> dict[str, Line]:
    """Return what the host takes of each step: sampling and all else, by drafter."""
    return {
        method: Line(profile.verify.base_s, profile.verify.per_row_s) for method, profile in engine.profiles.items()
    }


def _bare(passes: Passes, method: str) -> HardwareProfile:
    """Return the passes of an arm alone."""
    head = method == "EAGLE-3"
    return HardwareProfile(
        name=f"vllm, {method}",
        draft=StepTime(roofline=passes.draft) if head else StepTime(),
        verify=StepTime(roofline=passes.verify),
        draft_prefill=StepTime(roofline=passes.draft_prefill) if head else StepTime(),
        verify_prefill=StepTime(roofline=passes.prefill),
    )


def _with_host(time: StepTime, host: Line) -> StepTime:
    return msgspec.structs.replace(time, base_s=host.one_s, per_row_s=host.further_s)


def _rounds_s(profile: HardwareProfile, walks: Walks, depth: int, share: float, batch: int) -> Floats:
    """Return the time of each round, where all copies find a draft or none does.

    `share`: how often they find one where nothing of it is accepted.
    """
    drafted = np.full(len(walks.context), float(depth))
    found_s = rounds_s(profile, walks.context, drafted, batch)
    if share == 1.0 or depth == 0:
        return found_s
    nothing_s = rounds_s(profile, walks.context, np.zeros_like(drafted), batch)
    likely = np.where(walks.accepted > 0, 1.0, share)
    return likely * found_s + (1 - likely) * nothing_s


def _beside(
    bare: HardwareProfile,
    method: str,
    fitted: Fitted,
    requests: dict[str, Answers],
    columns: tuple[int, ...],
    batches: tuple[int, ...] = (),
) -> dict[int, float]:
    """Return the seconds of a step, by batch, that stand in some columns of figure 4, beside its passes' share."""
    answers = requests[method]
    walks = answers.plain if method == "none" else answers.speculative
    depth = 0 if method == "none" else SHARES_DEPTH
    share = fitted.matching * answers.matching if method == "n-gram" else 1.0
    passes = msgspec.structs.replace(bare, draft=StepTime(), draft_prefill=StepTime())
    found = {}
    for batch, shares in SHARES[method].items():
        if not batches or batch in batches:
            passes_s = np.sum(prefills_s(passes, walks.prompts, batch)) + np.sum(
                _rounds_s(passes, walks, depth, share, batch)
            )
            steps = len(walks.context) + len(walks.prompts)
            found[batch] = sum(shares[column] for column in columns) / shares[1] * float(passes_s) / steps
    return found


def _line(by_batch: dict[int, float]) -> Line:
    """Lay a line through times by batch, with the least relative error."""
    further = np.array(list(by_batch), dtype=np.float64) - 1
    times_s: NDArray[np.float64] = np.array(list(by_batch.values()))
    slope, one_s = np.polyfit(further, times_s, 1, w=1 / times_s)
    return Line(float(one_s), max(float(slope), 0.0))


def _sharpened(placed: Placed, sharpness: float) -> Placed:
    figure = msgspec.structs.replace(placed.device.sharpness, value=sharpness, source="fitted: figure 1, InstructCoder")
    return msgspec.structs.replace(placed, device=msgspec.structs.replace(placed.device, sharpness=figure))
