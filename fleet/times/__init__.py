"""How long things take: a machine's profile, and times drawn from it.

Begin with `step_time.py` (the formula of a step) and `profile.py` (all numbers of a machine and a model pair);
`durations.py` draws the times of a station's steps, `pace.py` holds how slow a shared host was.
"""
