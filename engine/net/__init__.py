"""The network of a node: both ends of its connections, wire formats, access and limits. Without torch.

- `server.py`, `client.py`: the ends of a connection as state machines, without I/O.
- `connections.py`: all connections of a node. `actions.py`: what the ends want to have done.
- `handshake.py`, `content.py`, `frames.py`: messages, their content, and both as bytes.
- `access.py`, `keys.py`: which keys may connect. `limits.py`: what a peer may send.
- `sockets.py`, `socket_thread.py`: ZeroMQ, and the thread that owns it. `addresses.py`: addresses as users write them.
- `links.py`: times and faults of links that a scenario describes. `clock.py`: the clock, and exact waits.
- `rates.py`: how often a peer may send, and a log with a limited rate.
"""
