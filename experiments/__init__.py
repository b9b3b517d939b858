"""Both worlds used together: sweeps, comparisons, plans, the demo, reports, reproductions.

- `sweep/`: keys over values. `compare/`: a run against another, and where the difference comes from.
- `plan/`: which fleet to build. `demo/`: calibrate, run both worlds, compare, draw.
- `report/`: one page of results. `reproduce/`: the papers' tables and figures.
- `draw.py`: figures from results. `notes.py`: warnings about a scenario. `jobs.py`, `cluster.py`, `memory.py`: workers.
- `console/`: printing and exit statuses. `watching.py`: status of a running fleet.
"""
