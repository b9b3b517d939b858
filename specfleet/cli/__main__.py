"""`python -m specfleet.cli` is the command `specfleet`."""

from specfleet.cli import main

main()
