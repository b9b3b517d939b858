"""What strangers and dishonest peers may say to a server, while honest targets are served there.

frames.py    frames that no honest target sends: junk, damage, and what is well formed but wrong
attackers.py who sends them, and what they keep in mind of a conversation
attack.py    honest targets and attackers at one drafter in memory, and what must hold then
pace.py      real processes: honest targets' pace and the drafter's memory, alone and beside attackers

`python -m tests.fuzz --messages 1000000` runs as many as one likes; `make fuzz` runs a million.
"""
