"""Cells of a sweep on other machines, by dask: `parcels.py` is what travels and the worker's part, `send.py` ours."""
