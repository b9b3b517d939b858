"""Every shipped scenario, run here and compared with its simulation: `python -m experiments.shipped`.

here.py        each as this host can run it: stations replayed, or its batch calibrated first
command.py     run, replay, compare, print
"""
