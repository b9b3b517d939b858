"""What ends first when a fleet grows: `docs/scale.md`, written by `python -m experiments.scale`."""
