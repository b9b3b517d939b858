"""The demo; `run.py` is the whole of it in order."""
