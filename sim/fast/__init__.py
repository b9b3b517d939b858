"""A compiled loop for plain stars: the same records as the SimPy path's, row for row, many times as fast.

`plain.py` says which fleets it knows; whatever else there is takes the SimPy path. `arrays.py` lays a fleet out in
arrays of the records of `layout.py`, `numbers.py` feeds the loop with random numbers, `kernel.py` is the loop,
`table.py` makes Arrow columns of what it wrote, `told.py` tables for metrics where no records are wanted, and `run.py`
drives it. `choice.py` says when it is taken. Numba compiles it, which is an optional extra (`pip install
'specfleet[fast]'`); `choice.py` and `plain.py` alone are imported without it.
"""
