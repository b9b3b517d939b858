"""The demo: `run.py` is the whole of it in order, `cells.py` what is run, `report.py` what it leaves behind."""
