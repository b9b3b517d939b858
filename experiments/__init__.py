"""Both worlds used together: what `specfleet` calls, and programs of their own (`python -m experiments.NAME`).

worlds.py      run a scenario in either world
sweep.py       any keys over values; resume.py says whether a kept cell still holds, jobs.py runs them side by side
replicate.py   one scenario with many seeds
precision.py   a simulation as long as it takes for intervals as narrow as asked
compare.py     two runs, quantity by quantity; differences.py says what they did not share
draw.py        figures from results
demo/          calibrate, run both worlds, compare, draw: the main job
reproduce/     the papers' tables and figures, row by row
scenarios/     the scenarios that ship; batch_rules.py names the batch rules that are compared
terminal/      how programs end, and what they print

bench/ modes/ coverage/ zoo/ gpu_check/
               programs: peers, every mode in both worlds, intervals, types of models, a GPU machine.
               Each has its command in command.py; __main__.py puts it under terminal/exits.py before its imports.
"""
