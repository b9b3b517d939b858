"""Fleets of replayed stations over the real transport, predicted and then run: `python -m experiments.replayed`."""
