"""calibrate: a model pair on this host is measured, and becomes a hardware profile and a scenario that fits."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.errors import OutputError
from fleet.files import check_writable
from fleet.scenario.changes import Changes, pairs_of
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile, write_profile
from specfleet.arguments import flag_of, function_of, path_of, text_of
from specfleet.host_scenario import fitting_path, scenario_of_pair, write_fitting
from specfleet.scenario import Given, pairs_of_given, scenario_of

OWN = {"name": "calibration", "workload": {"prompt_tokens": 128, "new_tokens": 96}}
"""What is measured where no scenario is given: a chain of depth 5 on these lengths."""


def calibrate(
    scenario: Given | None = None,
    changes: Changes | None = None,
    *,
    prompts: str = "demo/calibration",
    quick: bool = False,
    out: str | Path | None = None,
    report: Callable[[str], None] = lambda _stage: None,
    **keys: Any,
) -> HardwareProfile:
    """Measure a model pair on this host and return its hardware profile, with fits and residuals.

    `scenario`: what to measure; without one a pair, by default the demo pair. `changes` and keywords as in `simulate`.
    `prompts`: "demo/calibration", or a JSON Lines file; take others than those of the runs that the profile shall
    predict. `quick`: a smaller grid and fewer repetitions. `out`: where to write the profile (JSON); beside it, under
    the same name with `.toml`, a scenario that fits it, unless there is one, and what else was recorded, such as
    `signals.parquet` of a batch whose drafts are chains. `report` is told the name of each stage as it begins. Needs
    `specfleet[engine]`. Raises InputError for bad input, and OutputError where the profile cannot be written; its
    `result` is the profile.

        if __name__ == "__main__":  # its processes import the script that starts them
            profile = specfleet.calibrate(drafters={"model": "models/small"}, verifiers={"model": "models/large"})
            specfleet.simulate("star", profile=profile)
    """
    from calibrate import batches
    from calibrate.run import QUICK, Effort
    from calibrate.run import calibrate as calibrate_pair

    file = path_of(out, "out") if out is not None else None
    flag_of(quick, "quick")
    function_of(report, "report")
    own = own_scenario(scenario, pairs_of_given(changes, keys), text_of(prompts, "prompts"))
    chosen = measured_scenario(own, prompts)
    if file is not None:
        check_writable(file)
    with tempfile.TemporaryDirectory() as kept_nowhere:
        folder = file.parent if file is not None else Path(kept_nowhere)
        if chosen.batch is not None:
            profile = batches.calibrate_batch(chosen, folder, report, batches.QUICK if quick else batches.WHOLE)
        else:
            profile = calibrate_pair(chosen, folder, QUICK if quick else Effort(), report)
    if file is not None:
        try:
            write_profile(profile, file)
            fits = own if scenario is not None else scenario_of_pair(own, profile)
            write_fitting(fits, profile, file.name, fitting_path(file, scenario))
        except OutputError as error:
            error.result = profile
            raise
    return profile


def own_scenario(scenario: Given | None, changes: Changes, prompts: str) -> Scenario:
    """Return the scenario that a calibration is for; without one, that of a pair, on prompts of the same kind.

    >>> own_scenario(None, {"drafters.depth": 3}, "demo/calibration").workload.prompts
    'demo/evaluation'
    """
    if scenario is not None:
        return scenario_of(scenario, changes)
    runs_on = "demo/evaluation" if prompts == "demo/calibration" else prompts
    return scenario_of(make_scenario(OWN, "calibrate"), [("workload.prompts", runs_on), *pairs_of(changes)])


def measured_scenario(own: Scenario, prompts: str) -> Scenario:
    """Return the scenario that is measured for another one: the same on calibration prompts.

    >>> measured_scenario(own_scenario(None, (), "demo/calibration"), "demo/calibration").workload.prompts
    'demo/calibration'
    """
    return scenario_of(own, {"workload.prompts": prompts})
