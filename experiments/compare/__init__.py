"""Comparison of runs: which quantities differ, by how much, and why. `validation.py` is what users call."""
