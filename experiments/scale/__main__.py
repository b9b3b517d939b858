"""`python -m experiments.scale` runs `command.py`."""

from experiments.terminal.exits import run_main

if __name__ == "__main__":
    run_main("experiments.scale.command")
