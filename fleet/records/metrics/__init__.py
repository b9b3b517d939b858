"""Metrics of a run: pure functions of its event table, the same for both worlds. `measure.py` computes all of them.

- `glossary.py`: one line on each metric. `findings.py`, `tables.py`: the tables that metrics are computed from.
- `window.py`, `grouped.py`, `intervals.py`, `steady.py`: the measurement window, and its 95 % intervals.
- `overload.py`: more arrivals than capacity. `outages.py`: faults. `service.py`: goals.
- `devices.py`: load, energy, cost.
"""
