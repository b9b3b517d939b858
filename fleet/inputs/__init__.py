"""Reads user input: one module each for text, Parquet, types and units.

text.py        files as text, TOML, JSON and lines: their size, their encoding, their form
parquet.py     Parquet files against a schema
strict.py      from untyped content to typed structs; errors name key, value and what is allowed
format.py      the version number of files
quantities.py  `10ms`, `70%`, `1Gbit`: numbers with a unit, read by the suffix of their key
"""
