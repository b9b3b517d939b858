"""`python -m experiments.gpu_check` runs `command.py`."""

from experiments.terminal.exits import run_main

if __name__ == "__main__":
    run_main("experiments.gpu_check.command", "gpu-check")
