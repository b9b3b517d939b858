"""The demo on this device, with up to 16 replayed targets: calibration, both worlds, three errors, figures."""

import argparse

from bench.harness import Options, Report, Row
from specfleet.experiments.console.printing import remark
from specfleet.experiments.demo.cells import CALIBRATION, SHORT, DemoEffort
from specfleet.experiments.demo.run import run_demo

COUNTS = ((1, 3, 16), (1, 3, 5, 16))  # of targets, for each ratio of return and service time

OPTIONS: Options = {
    "--tiny": {"action": "store_true", "help": "as few targets as the short demo"},
}


def study(options: argparse.Namespace) -> Report:
    """Calibrate, run and simulate; the folder has the report, the figures and the profile."""
    effort = SHORT if options.tiny else DemoEffort(CALIBRATION, COUNTS, 2)
    result = run_demo(options.out, effort, remark)
    rows: list[Row] = [{"found": line} for line in result.lines]
    return Report({"star": rows})
