"""The network of a node: both ends of its connections, wire formats, access and limits. Without torch.

- `server.py`, `client.py`: the ends of a connection as state machines, without I/O. `sessions.py`: a peer's sessions.
- `connections.py`: all connections of a node. `actions.py`: what the ends want to have done.
- `handshake.py`, `content.py`, `frames.py`: messages, their content, and both as bytes.
- `access.py`, `keys.py`: which keys may connect. `limits.py`, `token_bucket.py`: what a peer may send, and how often.
- `sockets.py`, `socket_thread.py`: ZeroMQ, and the thread that owns it. `addresses.py`: addresses as users write them.
- `links.py`: times and faults of links that a scenario describes. `clock.py`: the clock, and exact waits.
- `rate_limited_log.py`: log lines, rate-limited.
"""
