"""`python -m specfleet` is the command `specfleet`."""

from specfleet.cli.entry import main

main()
