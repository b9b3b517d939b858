"""The event table of a run, for both worlds. Begin with `schema.py` (columns) and `run.py` (a run and its file).

- `recorder.py`: wraps a station and writes its rows. `replay.py`: checks logged plans against logged events.
- `playback.py`: parts of a run that a simulation plays back. `delays.py`: what the host adds to it.
- `join.py`: records of nodes on several hosts as one run.
- `metrics/`: all metrics of a run.
- `columns.py`: tables of numpy columns.
- `power.py`: power samples of devices, and energy. `progress.py`: what a run has done so far, for its living line.
"""
