"""The command line, one file a group of commands; `entry.py` gathers them. `python -m specfleet` runs it too.

    entry.py      the list of commands, and how errors end: one line on standard error, exit status 2
    options.py    arguments and options that several commands share
    run.py        simulate, run, analytic, show: one scenario
    study.py      sweep, compare, reproduce, figure: several runs, papers, pictures
    calibrate.py  calibrate, demo: this host is measured
    nodes.py      drafter, verifier: one node of a fleet over several hosts
    meaning.py    explain, profiles, scenarios, init: what things mean, what ships, a scenario to begin with

Commands parse, call what `import specfleet` offers, and print. They import what they need when they run, so that
`specfleet --help` does not wait for libraries.
"""

from specfleet.cli.entry import app, main

__all__ = ["app", "main"]
