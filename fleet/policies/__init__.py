"""The rules of the papers and ours, as frozen structs of parameters with pure methods; no clock, no state, no I/O.

One file a kind of rule (`order.py`, `group.py`, `allocate.py`, `ragged.py`, `route.py`, `overlap.py` ...), and one a
paper (`goodspeed.py`, `dsde.py`, `adaedl.py`). What a rule remembers is a value that its station keeps.
"""
