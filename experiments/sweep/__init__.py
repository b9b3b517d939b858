"""Sweeps: every combination of varied keys is a cell; see `sweep.py`."""
