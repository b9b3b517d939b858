"""Decisions, times and records of a fleet, shared by the simulator and the engine. No room here imports either.

Rooms, from the ground up:

- `errors`, `interrupts`, `shown`: user errors, signals, one-line results.
- `inputs`, `files`, `data`: how user input is read, how files are written, what ships.
- `policies`: rules without state.
- `acceptance`: models of accepted tokens.
- `times`, `hardware`: step times, measured or estimated from data sheets.
- `scenario`: what to run, and what follows from it.
- `stations`: state machines that decide.
- `records`: what happened, and its metrics.

Begin with `scenario/scenario.py`, then `stations/station.py`.
"""
