"""Comparison of runs: which quantities differ, by how much, and why. `compare_runs` is what users call."""
