"""Plan, simulate and measure distributed speculative decoding of large language models: the Python API.

    import specfleet

    result = specfleet.simulate("star", {"verifiers.count": 8}, seed=3)
    result.metrics["throughput"].value, result.frame(), result.figure("timeline")

    specfleet.sweep("star", {"verifiers.count": range(1, 9)}).figure()

A scenario is a file (TOML), the name of a shipped one, or a `Scenario`; changes are values by dotted key, or keywords.
The command line (`cli/`) parses, calls these functions and prints. Begin with `running.py`; `results.py` holds what
comes back. Names are imported when they are used: `import specfleet` alone imports no library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.errors import ClusterError, InputError, OutputError
    from fleet.records.window import Metric
    from fleet.scenario.scenario import Scenario
    from fleet.times.profile import HardwareProfile
    from specfleet.calibrating import calibrate
    from specfleet.comparing import compare, three_errors
    from specfleet.estimating import estimate
    from specfleet.exporting import export
    from specfleet.importing import Imported, import_record
    from specfleet.planning import plan
    from specfleet.reporting import report
    from specfleet.results import Prediction, Result, SettledFleet
    from specfleet.running import analytic, play_back, read_run, run, show, simulate
    from specfleet.scenario import scenario_of
    from specfleet.studied import Comparison, Reproduction, Sweep
    from specfleet.studies import figure, reproduce, sweep

    __version__: str

_HOMES = {
    "fleet.errors": ("ClusterError", "InputError", "OutputError"),
    "fleet.records.window": ("Metric",),
    "fleet.scenario.scenario": ("Scenario",),
    "fleet.times.profile": ("HardwareProfile",),
    "specfleet.calibrating": ("calibrate",),
    "specfleet.comparing": ("compare", "three_errors"),
    "specfleet.estimating": ("estimate",),
    "specfleet.exporting": ("export",),
    "specfleet.importing": ("Imported", "import_record"),
    "specfleet.planning": ("plan",),
    "specfleet.reporting": ("report",),
    "specfleet.results": ("Prediction", "Result", "SettledFleet"),
    "specfleet.running": ("analytic", "play_back", "read_run", "run", "show", "simulate"),
    "specfleet.scenario": ("scenario_of",),
    "specfleet.studied": ("Comparison", "Reproduction", "Sweep"),
    "specfleet.studies": ("figure", "reproduce", "sweep"),
}
"""Where each name is defined, as the imports above tell type checkers."""

__all__ = [
    "ClusterError",
    "Comparison",
    "HardwareProfile",
    "Imported",
    "InputError",
    "Metric",
    "OutputError",
    "Prediction",
    "Reproduction",
    "Result",
    "Scenario",
    "SettledFleet",
    "Sweep",
    "__version__",
    "analytic",
    "calibrate",
    "compare",
    "estimate",
    "export",
    "figure",
    "import_record",
    "plan",
    "play_back",
    "read_run",
    "report",
    "reproduce",
    "run",
    "scenario_of",
    "show",
    "simulate",
    "sweep",
    "three_errors",
]


if not TYPE_CHECKING:  # a type checker would take any name for one that this function knows

    def __getattr__(name: str) -> Any:
        """Import a public name on its first use."""
        if name == "__version__":
            value = import_module("importlib.metadata").version("specfleet")
        else:
            homes = [home for home, names in _HOMES.items() if name in names]
            if not homes:
                raise AttributeError(f"module 'specfleet' has no attribute {name!r}")
            value = getattr(import_module(homes[0]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
