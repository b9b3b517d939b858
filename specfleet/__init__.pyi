"""The public names: type checkers read them here, and so does `__init__.py`."""

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
from specfleet.experiments.plan.advice import FleetPlan as FleetPlan
from specfleet.experiments.plan.advice import plan_devices as plan_devices
from specfleet.experiments.plan.ask import plan as plan
from specfleet.experiments.plan.methods import Methods as Methods
from specfleet.experiments.plan.methods import compare_methods as compare_methods
from specfleet.experiments.report.make import report as report
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
