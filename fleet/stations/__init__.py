"""The servers of the network as state machines: events with times go in, instructions and plans come out.

Begin with `station.py`, `session.py` and `messages.py`. The kinds are `drafter.py`, `verifier.py` (lost drafters beside
the rounds of `target.py`), `aligned.py` and `router.py`. `buffer.py` is the work that waits for their devices.
`build.py` makes all stations of a resolved fleet.
"""
