"""What happened in a run: one event table for both worlds, and everything that is computed from it.

Begin with `schema.py` (the columns) and `run.py` (a run and its file).

    schema.py, recorded.py   the columns; a station that writes its rows, and a row's event
    run.py, tables.py        a run and its file; rounds and commits of rows
    columns.py, grouped.py   tables of numpy columns; what can be said of rows that agree in some keys
    arrow.py                 between Arrow and numpy
    metrics.py, goodput.py   all numbers of a run; GoodSpeed's. glossary.py says what each of them means
    window.py, intervals.py  the part of a run that counts, and estimates from it; the formulas of their intervals
    devices.py, service.py   busy devices, their cost and energy; goals of requests, the gain over plain decoding
    steady.py, overload.py   how long a run must be for intervals; whether more was offered than is carried
    replay.py                whether logged plans follow from logged events
    playback.py              what of a run can be played back
    overheads.py             delays around the steps of each station
    findings.py              the tables that metrics are computed from: of the rows, or of the compiled loop
    outages.py               how long targets decoded alone, because their drafter was silent
    counters.py, recent.py   what a running fleet has done since it began, and its metrics over the last minute
    samples.py, power.py     what devices drew meanwhile: one look at them; energy a token
    trace.py                 a run as a trace for a viewer
"""
