"""Approximate mean value analysis held against simulations over a drawn grid, and how long a cell of it takes.

cells.py       cells: stars of like and unlike targets, of any variability, drawn by a seed
missed.py      what the equations say of a cell, what a simulation says, and the error by region
command.py     the program
"""
