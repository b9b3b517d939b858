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

if TYPE_CHECKING:
    from calibrate.export import export as export
    from calibrate.host import calibrate as calibrate
    from calibrate.readers.importing import Imported as Imported
    from calibrate.readers.importing import import_record as import_record
    from experiments.compare.compare import Comparison as Comparison
    from experiments.compare.loads import LoadComparison as LoadComparison
    from experiments.compare.loads import compare_load as compare_load
    from experiments.plan.advice import FleetPlan as FleetPlan
    from experiments.plan.advice import plan_devices as plan_devices
    from experiments.plan.ask import plan as plan
    from experiments.plan.methods import Methods as Methods
    from experiments.plan.methods import compare_methods as compare_methods
    from experiments.report.make import report as report
    from experiments.reproduce.every import reproduce as reproduce
    from experiments.reproduce.rows import Reproduction as Reproduction
    from fleet.errors import InputError as InputError
    from fleet.errors import OutputError as OutputError
    from fleet.hardware.profile import estimate as estimate
    from fleet.records.metrics.window import Metric as Metric
    from fleet.scenario.reading import scenario_of as scenario_of
    from fleet.scenario.scenario import Scenario as Scenario
    from fleet.times.profile import HardwareProfile as HardwareProfile
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
    from specfleet.results import Prediction as Prediction
    from specfleet.results import ResolvedFleet as ResolvedFleet
    from specfleet.results import Result as Result
    from specfleet.results import Sweep as Sweep

    __version__: str

_HOMES = {
    "calibrate.export": "export",
    "calibrate.host": "calibrate",
    "calibrate.readers.importing": "Imported import_record",
    "experiments.compare.compare": "Comparison",
    "experiments.compare.loads": "LoadComparison compare_load",
    "experiments.plan.advice": "FleetPlan plan_devices",
    "experiments.plan.ask": "plan",
    "experiments.plan.methods": "Methods compare_methods",
    "experiments.report.make": "report",
    "experiments.reproduce.every": "reproduce",
    "experiments.reproduce.rows": "Reproduction",
    "fleet.errors": "InputError OutputError",
    "fleet.hardware.profile": "estimate",
    "fleet.records.metrics.window": "Metric",
    "fleet.scenario.reading": "scenario_of",
    "fleet.scenario.scenario": "Scenario",
    "fleet.times.profile": "HardwareProfile",
    "specfleet.api": "analytic compare figure join play_back read_run run show simulate sweep three_errors",
    "specfleet.results": "Prediction Result ResolvedFleet Sweep",
}
"""The names that each module defines, as the imports above say to type checkers."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604  (texts, which ruff cannot see)


if not TYPE_CHECKING:  # a type checker would take any name for one that this function knows

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
