"""The ground floor: the language that the simulated and the real world share. It imports no world's library.

Its wings, from the ground up: `policies` (rules without state), `chance` (what is accepted), `times` (how long steps
take), `scenario` (what to run, and what follows from it), `stations` (state machines that decide), `records` (what
happened, and metrics of it). Begin with `scenario/scenario.py`, then `stations/station.py`.
"""
