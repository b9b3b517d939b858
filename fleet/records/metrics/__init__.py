"""Metrics of a run: pure functions of its event table, the same for both worlds. `measure.py` computes all of them."""
