"""Step times: a machine's profile, and times drawn from it.

Begin with `step_time.py` (the formula of a step) and `profile.py` (all numbers of a machine and a model pair);
`overhead.py` has the delays around steps, and `durations.py` draws the times of a station.
"""
