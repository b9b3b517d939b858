"""Compiled loops for plain stars and serving targets: the same records as the SimPy path, many times as fast.

1. `choice.py` selects the path, and says what the loop supports; it works without numba.
2. `arrays.py` lays a fleet out in arrays of the records of `layout.py`; `numbers.py` draws random numbers.
3. `kernel.py` is the loop of plain stars, compiled by numba (`pip install 'specfleet[fast]'`); `run.py` drives it.
   `events.py` has what all loops share.
4. `table.py` makes the event table, `findings.py` the tables of metrics without an event table.
5. `serving.py` is the loop of targets that do continuous batching. It calls `serving_rows.py`, `serving_drafters.py`
   and `serving_times.py`; `serving_arrays.py` and `serving_findings.py` are its arrays and its tables.
6. `sums.py` sums in that loop what metrics need; `streamed.py` makes the tables of long simulations from it.
"""
