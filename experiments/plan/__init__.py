"""Which fleet to build: how many drafters and targets, at which depth, for a load, goals and prices.

question.py    what is asked, and a fleet of it as a scenario; goals.py and prices.py read their texts
screen.py      every fleet by equations
choose.py      the contest: trials, who leads, who needs more seeds; cheapest.py where targets decode all the time,
               fewest.py where requests come by themselves
trial.py       one simulation of a fleet
race.py        comparisons by common random numbers, pure
doubt.py       what step times that are off change
answer.py      the plan: ranges, goals, table, rule of thumb; lines.py says it in five lines, make.py makes it
"""
