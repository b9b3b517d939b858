"""Which fleet to build: how many drafters and targets, at which depth, for a load, goals and prices; see `ask.py`."""
