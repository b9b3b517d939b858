"""What happened in a run: one event table for both worlds, and everything that is computed from it.

Begin with `schema.py` (the columns) and `run.py` (a run and its file). `tables.py` makes rounds and commits of rows,
`metrics.py` makes numbers of these, `replay.py` checks that the logged plans follow from the logged events.
"""
