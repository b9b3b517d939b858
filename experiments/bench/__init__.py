"""Benchmarks beside peers, interleaved in one run: `python -m experiments.bench`."""
