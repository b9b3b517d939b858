"""Which fleet to build: how many drafters and targets, at which depth, for a load, goals and prices.

ask.py       from options to a question, and to its plan; goals.py and places.py read their texts
question.py  the question, and a fleet of it as a scenario
screen.py    every fleet by equations
search.py    which fleets are simulated, and which one is chosen
trials.py    simulations of a fleet, compared by common random numbers
doubt.py     what step times that are off change
answer.py    the plan: ranges, goals, table, rule of thumb; lines.py says it in five lines
"""
