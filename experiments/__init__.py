"""Sweeps, comparisons, the demo and the papers' tables: both worlds used together."""
