"""Messages of strangers and dishonest peers to a server with honest targets.

- `frames.py`: frames that no honest target sends: junk, damage, and well-formed but wrong ones.
- `attackers.py`: the attackers, and their state of a conversation.
- `attack.py`: honest targets and attackers at one drafter in memory, with the laws.
- `pace.py`: real processes: honest targets' rate and the drafter's memory, alone and beside attackers.

`python -m tests.fuzz --messages 1000000` runs any number; `make fuzz` runs a million.
"""
