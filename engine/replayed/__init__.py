"""Replayed stations: they take the times of other hardware, and have no model.

- `targets.py`: all replayed targets of a process, and each of them.
- `answers.py`: their acceptance; `continuations.py`: texts that a real target has decoded before.
- `drafter.py`: a replayed drafter.
"""
