"""What both worlds share. It imports no library of a world.

Rooms, from the ground up: `errors`, `interrupts`, `equations` and `shown` (user errors, signals, equations, results
in one line); `inputs` (how user input is read) and `files` (how files are written); `data` (what ships); `policies`
(rules without state); `acceptance` (accepted tokens); `times` (step times); `hardware` (step times of unmeasured
hardware); `scenario` (what to run, and what follows from it); `stations` (state machines that decide); `records` (what
happened). Begin with `scenario/scenario.py`, then `stations/station.py`.
"""
