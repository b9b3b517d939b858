"""Sweeps: every combination of varied keys is a cell.

- `sweep.py` runs the cells; `cell.py` runs one; `resume.py`: whether a stored one is still valid.
- `table.py`, `figure.py`: numbers and figures of a question to a sweep.
"""
