"""The zoo: a tiny random model of every type that the engine admits, held against transformers' own computation."""
