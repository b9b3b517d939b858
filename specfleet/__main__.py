"""`python -m specfleet` is the command `specfleet`."""

from specfleet.cli import main

main()
