"""Every way to decode, predicted and measured: `python -m experiments.modes -o runs/modes`."""
