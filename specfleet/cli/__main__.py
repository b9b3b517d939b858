"""`python -m specfleet.cli` is the command `specfleet`."""

from specfleet.cli.entry import main

main()
