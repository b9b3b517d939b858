"""The demo: `run.py` is the whole of it in order, `cells.py` what is run.

`findings.py` has the lines that it prints, `pictures.py` the figures and the trace.
"""
