"""The public names: type checkers read them here, and so does `__init__.py`."""

from calibrate.export import export as export
from calibrate.host import calibrate as calibrate
from calibrate.readers.importing import Imported as Imported
from calibrate.readers.importing import import_record as import_record
from experiments.compare.compare import Comparison as Comparison
from experiments.compare.loads import LoadComparison as LoadComparison
from experiments.compare.loads import compare_load as compare_load
from experiments.plan.answer import Plan as Plan
from experiments.plan.ask import plan as plan
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
