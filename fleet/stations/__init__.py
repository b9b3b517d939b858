"""The servers of the network as state machines: events go in with their time, instructions and plans come out.

Begin with `station.py`, `session.py` and `messages.py`; the kinds are `drafter.py`, `verifier.py`, `batch.py` and
`router.py`. `buffer.py` is what waits for their devices. `build.py` makes all stations of a resolved fleet.
"""
