"""estimate: a profile for hardware and models that nobody measured."""

from fleet.errors import InputError
from fleet.estimate.profile import estimated_profile, placed_of
from fleet.times.profile import HardwareProfile
from specfleet.arguments import count_of, text_of


def estimate(
    target: str,
    draft: str | None = None,
    *,
    precision: str = "bf16",
    tensor_parallel: int = 1,
    engine: str = "graphs",
    draft_engine: str | None = None,
) -> HardwareProfile:
    """Estimate the step times of a target and its drafter by rooflines; every number of the profile is labelled.

    `target`, `draft`: where a model runs, MODEL@DEVICE, MODEL@4xDEVICE for tensor parallel 4, MODEL@DEVICE:fp8 for its
    precision. A model ships by name, or is a config.json of transformers (or its folder); a device ships, or is a TOML
    file of the same keys. Without `draft` the profile has the one model in both roles. `precision`, `tensor_parallel`:
    the target's, where its text does not say; a drafter runs on one device in bf16 unless its own text says otherwise.
    `engine`: graphs or eager, or a file; `draft_engine`: the drafter's, where it is another. Raises InputError, in one
    line with what is allowed, for what is not known and for what does not fit.

    >>> import specfleet
    >>> profile = specfleet.estimate("llama-3.1-8b@h100", "eagle3-llama-3.1-8b@h100")
    >>> profile.sources["verify"]
    'estimated: roofline of llama-3.1-8b on h100, bf16, CUDA graphs, one pass'
    """
    parallel = count_of(tensor_parallel, "tensor_parallel")
    host = text_of(engine, "engine")
    verifying = placed_of(
        text_of(target, "target"), precision=text_of(precision, "precision"), parallel=parallel, engine=host
    )
    if draft is None:
        if draft_engine is not None:
            raise InputError(f"draft_engine = {draft_engine!r}: there is no draft; give one, or leave it out")
        return estimated_profile(verifying)
    drafting = placed_of(
        text_of(draft, "draft"), engine=host if draft_engine is None else text_of(draft_engine, "draft_engine")
    )
    return estimated_profile(verifying, drafting)
