"""Sweeps: every combination of varied keys as a cell. `sweep.py` runs them, `cell.py` is one of them."""
