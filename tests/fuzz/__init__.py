"""Messages of strangers and dishonest peers to a server with honest targets. `make fuzz` sends a million."""
