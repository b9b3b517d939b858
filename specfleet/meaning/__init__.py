"""What things mean, read from the code: keys of scenarios and profiles, metrics, symbols, columns, policies, models.

docstrings.py   a struct's docstring in parts: a first sentence, prose, and its section `Keys:`
kinds.py        types, bounds and defaults of keys in words
tables.py       documented structs as tables of keys, found from a root
entries.py      all that can be looked up, from tables, glossary and columns
lookup.py       a word's entries, or the nearest words
shipped.py      profiles and scenarios that come with the project
template.py     a commented scenario to begin with
"""
