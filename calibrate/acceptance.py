"""Fits of accepted lengths, and how far they are from the measured distribution."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from specfleet.fleet.acceptance.fits import fit_beta_geometric, fit_geometric, mean_interval, total_variation
from specfleet.fleet.errors import InputError


def describe_acceptance(sessions: Sequence[Sequence[int]], depth: int) -> dict[str, Any]:
    """Fit one beta and the beta-geometric model to accepted lengths, and compare both with the measured distribution.

    - `sessions[i]` (tokens): accepted lengths of the rounds of prompt i, at `depth`.

    InputError if there are none: targets refused every draft of a sampled fleet.
    """
    if not sessions:
        raise InputError("acceptance: no draft was verified; give models of one tokenizer, or workload.temperature = 0")
    lengths = np.concatenate([np.array(session) for session in sessions])
    models = {"geometric": fit_geometric(lengths, depth), "beta_geometric": fit_beta_geometric(lengths, depth)}
    fits = {
        name: msgspec.to_builtins(model) | {"total_variation": total_variation(model, lengths, depth)}
        for name, model in models.items()
    }
    mean = mean_interval(sessions)
    return {"rounds": len(lengths), "mean": mean.mean, "low": mean.low, "high": mean.high, **fits}
