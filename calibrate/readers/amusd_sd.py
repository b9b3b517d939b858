"""AMUSD's run files as a recording: where drafter and target agree, and the step times of the synchronous runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from calibrate.readers.amusd import (
    Measured,
    agreement_of,
    catch_up_s,
    depth_of,
    powers_of,
    prefills_of,
    profile_of,
    read_runs,
)
from calibrate.readers.recording import Recording
from fleet.chance.tokens import Agreement
from fleet.errors import InputError
from fleet.times.step_time import StepTime


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
    share = len(runs[0].draft_times) * runs[0].draft_s / runs[0].total_time
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
        power=powers_of(samples[0], share) if len(samples) == 1 else None,
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
        told=_mean(run.accepted_tokens for run in runs),
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


def _token_s(greedy: Measured) -> float:
    """Time of a token after the first; the clock of single ones stops when their kernels are launched."""
    return max(greedy.total_time - greedy.token_times[0], 0.0) / (greedy.tokens_generated - 1)
