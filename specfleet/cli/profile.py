"""profile estimate: estimated step times, and the figures behind them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfleet.cli.options import AsJson, file_option
from specfleet.experiments.console.exits import keeping
from specfleet.experiments.console.printing import print_json, print_table, remark

if TYPE_CHECKING:
    from specfleet.fleet.times.profile import HardwareProfile

FORM = "MODEL@DEVICE[:PRECISION][:kv-fp8], or MODEL@4xDEVICE for tensor parallel 4; names, or files."


def estimate(
    target: Annotated[str, typer.Option(metavar="PLACE", help=f"The target: {FORM}")],
    out: Annotated[
        Path | None, file_option("-o", "--out", metavar="PROFILE", help="Profile to write (JSON); else it is printed.")
    ] = None,
    draft: Annotated[str | None, typer.Option(metavar="PLACE", help=f"The drafter: {FORM}")] = None,
    engine: Annotated[
        str, typer.Option(help="graphs, eager (transformers), vllm, sglang, trtllm, or a TOML file.")
    ] = "graphs",
    as_json: AsJson = False,
) -> None:
    """Estimate the step times of a target and its drafter from their shapes and their devices' figures.

    Without a drafter the profile has the model in both roles. Each number is labelled: estimated, stated, assumed.
    """
    from specfleet import estimate
    from specfleet.fleet.times.profile import write_profile

    with keeping(out):
        profile = estimate(target, draft, engine=engine)
        if out is not None:
            write_profile(profile, out)
        print_estimate(profile, as_json)
    if out is not None and not as_json:
        remark(f"profile: {out} (digest {profile.digest()})")


def print_estimate(profile: "HardwareProfile", as_json: bool) -> None:
    """Print estimated step times, and the figures that they follow from, each with its label."""
    from specfleet.fleet.times.describe import formula_ms
    from specfleet.fleet.times.labels import label_of
    from specfleet.fleet.times.profile import STEPS

    if as_json:
        print_json(profile)
        return
    rows = [(name, formula_ms(getattr(profile, name)), profile.sources[name]) for name in (*STEPS, "realign")]
    print_table(f"profile {profile.name}, estimated", ("step", "time (k tokens, n context)", "source"), rows, texts=3)
    figures = [(name, label_of(source), source) for name, source in profile.sources.items() if "." in name]
    print_table("made of", ("figure", "label", "source"), figures, texts=3)
