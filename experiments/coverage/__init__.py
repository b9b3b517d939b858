"""How often the printed 95 % intervals hold the truth: `python -m experiments.coverage`."""
