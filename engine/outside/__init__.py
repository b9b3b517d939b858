"""vLLM, and servers of others, as a world: a scenario runs on them, and its run has the same event table."""
