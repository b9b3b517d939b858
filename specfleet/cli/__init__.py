"""The command line, one file a group of commands; `entry.py` gathers them. `python -m specfleet` runs it too.

    entry.py      the list of commands; experiments/console/exits.py says how they end
    options.py    arguments and options that several commands share
    run.py        simulate, run, analytic, show: one scenario
    study.py      sweep, compare, reproduce, figure, report: several runs, papers, pictures, one page of results
    plan.py       plan: which fleet to build
    profile.py    profile estimate: estimates for hardware without measurements
    calibrate.py  calibrate, demo: this host is measured
    imports.py    import, export: records of other engines become scenarios; theirs is forced to a scenario's
    nodes.py      drafter, verifier, router, keys: nodes of a fleet over several hosts, and their keys
    watching.py   what is shown while a run or a node works
    meaning.py    explain, profiles, scenarios, init: what things mean, what ships, a scenario to begin with

Commands parse, call what `import specfleet` offers, and print. They import what they need when they run, so that
`specfleet --help` does not wait for libraries.
"""

from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the command `specfleet`: signals and errors end as they should from the first import on."""
    from experiments.console.exits import run_main

    run_main("specfleet.cli.entry")
