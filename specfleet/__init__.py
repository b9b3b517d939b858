"""Plan, simulate and measure distributed speculative decoding of large language models: the Python API.

    import specfleet

    result = specfleet.simulate("star", {"verifiers.count": 8}, seed=3)
    result.metrics["throughput"].value, result.frame(), result.figure("timeline")

    specfleet.sweep("star", {"verifiers.count": range(1, 9)}).figure()

A scenario is a file (TOML), the name of a shipped one, or a `Scenario`; changes are values by dotted key, or keywords.
`api.py` has the functions that take scenarios and results, `results.py` what they return; the others live in the rooms
that do the work. The command line (`cli/`) parses, calls these functions and prints. Names are imported when they are
used: `import specfleet` alone imports no library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; the same names stand in HOMES
    from specfleet.api import analytic as analytic
    from specfleet.api import compare as compare
    from specfleet.api import figure as figure
    from specfleet.api import join as join
    from specfleet.api import play_back as play_back
    from specfleet.api import read_run as read_run
    from specfleet.api import run as run
    from specfleet.api import show as show
    from specfleet.api import simulate as simulate
    from specfleet.api import sweep as sweep
    from specfleet.api import three_errors as three_errors
    from specfleet.calibration.export import export as export
    from specfleet.calibration.host import calibrate as calibrate
    from specfleet.calibration.readers.importing import Imported as Imported
    from specfleet.calibration.readers.importing import import_record as import_record
    from specfleet.experiments.compare.compare import Comparison as Comparison
    from specfleet.experiments.compare.loads import LoadComparison as LoadComparison
    from specfleet.experiments.compare.loads import compare_load as compare_load
    from specfleet.experiments.plan.answer import Plan as Plan
    from specfleet.experiments.plan.ask import plan as plan
    from specfleet.experiments.report.explore import explore as explore
    from specfleet.experiments.report.pages import report as report
    from specfleet.experiments.reproduce.every import reproduce as reproduce
    from specfleet.experiments.reproduce.rows import Reproduction as Reproduction
    from specfleet.fleet.errors import InputError as InputError
    from specfleet.fleet.errors import OutputError as OutputError
    from specfleet.fleet.hardware.profile import estimate as estimate
    from specfleet.fleet.records.metrics.window import Metric as Metric
    from specfleet.fleet.scenario.reading import scenario_of as scenario_of
    from specfleet.fleet.scenario.scenario import Scenario as Scenario
    from specfleet.fleet.times.profile import HardwareProfile as HardwareProfile
    from specfleet.results import Prediction as Prediction
    from specfleet.results import ResolvedFleet as ResolvedFleet
    from specfleet.results import Result as Result
    from specfleet.results import Sweep as Sweep

    __version__: str

HOMES = {
    "specfleet.api": "analytic compare figure join play_back read_run run show simulate sweep three_errors",
    "specfleet.calibration.export": "export",
    "specfleet.calibration.host": "calibrate",
    "specfleet.calibration.readers.importing": "Imported import_record",
    "specfleet.experiments.compare.compare": "Comparison",
    "specfleet.experiments.compare.loads": "LoadComparison compare_load",
    "specfleet.experiments.plan.answer": "Plan",
    "specfleet.experiments.plan.ask": "plan",
    "specfleet.experiments.report.explore": "explore",
    "specfleet.experiments.report.pages": "report",
    "specfleet.experiments.reproduce.every": "reproduce",
    "specfleet.experiments.reproduce.rows": "Reproduction",
    "specfleet.fleet.errors": "InputError OutputError",
    "specfleet.fleet.hardware.profile": "estimate",
    "specfleet.fleet.records.metrics.window": "Metric",
    "specfleet.fleet.scenario.reading": "scenario_of",
    "specfleet.fleet.scenario.scenario": "Scenario",
    "specfleet.fleet.times.profile": "HardwareProfile",
    "specfleet.results": "Prediction ResolvedFleet Result Sweep",
}
"""The public names, by the module that has them."""

_HOME_OF = {name: home for home, names in HOMES.items() for name in names.split()}
__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604  (texts, which ruff cannot see)


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name == "__version__":
        value = import_module("importlib.metadata").version("specfleet")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'specfleet' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
