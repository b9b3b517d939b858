"""The ground floor: the language that the simulated and the real world share. It imports no world's library.

Its wings, from the ground up: `errors`, `interrupts`, `equations` and `shown` (what users can cause, signals, equations
that a policy needs, results in a line), `inputs` (how what users give is read) and `files` (how files are written),
`data` (files that ship), `policies` (rules without state), `chance` (what is accepted), `times` (how long steps take),
`estimate` (how long they would where nobody measured), `scenario` (what to run, and what follows from it), `stations`
(state machines that decide), `records` (what happened, and metrics of it). Begin with `scenario/scenario.py`, then
`stations/station.py`.
"""
