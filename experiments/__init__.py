"""Both worlds used together: what `specfleet` calls.

worlds.py      run a scenario in either world
sweep.py       any keys over values; cell.py runs one cell, jobs.py many side by side, memory.py in memory that they
               keep; resume.py says whether a kept one still holds
cluster/       cells of a sweep on other machines, by dask
notes.py       what in a scenario its author may not mean
precision.py   a simulation as long as it takes for intervals as narrow as asked
reruns.py      one scenario with many seeds; an engine's runs simulated blind and played back
compare.py     two runs, quantity by quantity, and where the error comes from: mechanism, parameters, host
               differences.py says what they did not share, budget.py what each part of a run makes of the error,
               summary.py the errors of many cells in a few lines, validation.py runs compared and predicted
draw.py        figures from results; sweep_figure.py the one that a question to a sweep asks for, sweep_table.py its
               numbers
demo/          calibrate, run both worlds, compare, draw: the main job
plan/          which fleet to build: how many drafters and targets, at which depth, for goals and prices;
               plan_files.py writes it
report/        one page of results, to send around
reproduce/     the papers' tables and figures, row by row
terminal/      how programs end, and what they print
watching/      what people see of a fleet while it works
"""
