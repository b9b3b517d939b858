"""calibrate, demo, profile estimate: this host is measured, and step times of other hardware are estimated."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfleet.cli.options import AsJson, Changes, EngineName, file_option, folder_option, settings
from specfleet.experiments.console.exits import keeping, printing_anyway
from specfleet.experiments.console.printing import print_json, print_table, progress, remark, say
from specfleet.fleet.errors import InputError

if TYPE_CHECKING:
    from specfleet.fleet.times.profile import HardwareProfile
FORM = "MODEL@DEVICE[:PRECISION][:kv-fp8], or MODEL@4xDEVICE for tensor parallel 4; names, or files."


def calibrate(
    out: Annotated[Path, file_option("-o", "--out", metavar="PROFILE", help="Profile to write (JSON).")],
    draft: Annotated[str, typer.Option(help="Folder of the draft model, or demo.")] = "demo",
    target: Annotated[str, typer.Option(help="Folder of the target model, or demo.")] = "demo",
    depth: Annotated[int, typer.Option(min=1, help="Depth at which acceptance is recorded.")] = 5,
    precision: Annotated[str, typer.Option(help="float32, float64, bfloat16, float16, int8 or int4.")] = "float32",
    prompts: Annotated[str, typer.Option(help="demo/calibration, or a JSON Lines file.")] = "demo/calibration",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    scenario: Annotated[
        Path | None,
        typer.Option(
            metavar="SCENARIO",
            help="Measure what it describes; of the options above, only --prompts and --quick apply then.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="STAGE", help="A stage to leave out, by the beginning of its name.")
    ] = None,
    accept_unsteady: Annotated[
        bool, typer.Option("--accept-unsteady", help="Write a profile of a host that is too unsteady; it says so.")
    ] = False,
    engine: EngineName = None,
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="[LENGTH=]URL", help="Measure this running server; LENGTH: of its drafts, 0 for none."),
    ] = None,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model pair on this host; write its profile.

    Beside the profile comes a scenario that fits it, for `run` and `simulate`.
    """
    from specfleet.calibration.host import calibrate, fitted_scenario, fitting_path, stages_folder
    from specfleet.engine.decoding.folders import DEMO_PAIR

    if scenario is None and changes:
        raise InputError("--set changes keys of a scenario; give one with --scenario")
    options = {
        "precision": precision,
        "drafters": {"model": draft, "depth": depth} | ({"place": "target"} if engine or server else {}),
        "verifiers": {"model": target},
    }
    overrides = settings(changes) if scenario else options
    measured = fitted_scenario(scenario, overrides, prompts)
    pair = [measured.drafters.model] * bool(measured.drafters.count) + [measured.verifiers.model]
    remark(f"calibration of {' and '.join(pair)}" + f"; demo is the pair in {DEMO_PAIR}" * ("demo" in pair))
    from specfleet.calibration.measurements import QUICK, Effort  # with torch, which takes seconds
    from specfleet.calibration.run import is_served, plan_of
    from specfleet.calibration.steadiness import unsteady
    from specfleet.fleet.acceptance.signals import signals_path

    fits, signals = fitting_path(out, scenario), signals_path(out)
    stages, stays = len(plan_of(measured, QUICK if quick else Effort())), fits.exists()
    with keeping(out, signals, stages_folder(out)), printing_anyway(lambda profile: print_profile(profile, as_json)):
        with progress("calibration", stages) as advance:
            profile = calibrate(
                scenario, overrides, prompts=prompts, quick=quick, without=without or (),
                accept_unsteady=accept_unsteady, engine=engine, server=server or (), out=out,
                report=advance, note=remark,
            )  # fmt: skip
        print_profile(profile, as_json)
    if (line := unsteady(profile)) is not None:
        remark(line)
    if not as_json:
        remark(f"profile: {out} (digest {profile.digest()})")
        if is_served(measured) and measured.drafters.count and signals.exists():
            remark(f"signals of drafted tokens: {signals}")
        if stays:
            remark(f"note: {fits} was there already and stays; remove it for a scenario that fits this profile")
        else:
            remark(f"scenario that fits it: {fits}")


def print_profile(profile: "HardwareProfile", as_json: bool) -> None:
    """Print the fits of a calibrated profile, with their median errors."""
    from specfleet.fleet.times.describe import LEGEND, describe

    if as_json:
        print_json(profile)
    else:
        print_table(f"profile {profile.name}", ("quantity", "value", "fit's error"), list(describe(profile)))
        say("\n".join(LEGEND))
        say("provenance: " + "; ".join(f"{key}: {value}" for key, value in profile.provenance.items()))


def demo(
    out: Annotated[Path, folder_option("-o", "--out", help="Folder of all that it leaves.")] = Path("runs/demo"),
    short: Annotated[bool, typer.Option("--short", help="A smaller grid, for continuous integration.")] = False,
) -> None:
    """Calibrate here, run both worlds, compare, draw: the main job."""
    from specfleet.experiments.demo.cells import FULL, SHORT
    from specfleet.experiments.demo.run import run_demo

    effort = SHORT if short else FULL
    with printing_anyway(lambda result: say("\n".join(result.lines))):
        with keeping(out), progress("demo", effort.stages) as advance:
            result = run_demo(out, effort, advance)
        say("\n".join(result.lines))


def estimate(
    target: Annotated[str, typer.Option(metavar="PLACE", help=f"The target: {FORM}")],
    out: Annotated[
        Path | None, file_option("-o", "--out", metavar="PROFILE", help="Profile to write (JSON); else it is printed.")
    ] = None,
    draft: Annotated[str | None, typer.Option(metavar="PLACE", help=f"The drafter: {FORM}")] = None,
    engine: Annotated[
        str, typer.Option(help="graphs, eager (transformers), vllm, sglang, trtllm, or a TOML file.")
    ] = "graphs",
    operators: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The target's operators, measured: GPU/MODEL/tpN of LLMServingSim."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the step times of a target and its drafter from their shapes and their devices' figures.

    Without a drafter the profile has the model in both roles. Each number is labelled: estimated, stated, assumed.
    """
    from specfleet import estimate
    from specfleet.fleet.times.effects import NO_CACHE
    from specfleet.fleet.times.profile import write_profile

    with keeping(out):
        profile = estimate(target, draft, engine=engine, operators=operators or "")
        if out is not None:
            write_profile(profile, out)
        print_estimate(profile, as_json)
    if profile.kv is not None and profile.kv.tokens() == 0:
        remark(f"warning: {target}: {NO_CACHE}")
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
