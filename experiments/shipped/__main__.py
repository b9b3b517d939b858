"""`python -m experiments.shipped` runs `command.py`."""

from experiments.terminal.exits import run_main

if __name__ == "__main__":
    run_main("experiments.shipped.command")
