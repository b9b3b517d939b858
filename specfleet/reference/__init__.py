"""What everything means: scenario keys, metrics, symbols, columns, profile fields and commands, read from the code.

    docstrings.py   a struct's docstring in parts: a first sentence, prose, and its section `Keys:`
    kinds.py        types, bounds and defaults of keys in words
    tables.py       documented structs as tables of keys, found from a root
    entries.py      all that can be looked up, from tables, glossary and columns
    lookup.py       a word's entries, or the nearest words
    pages.py        the pages of docs/reference/; `command_line.py` makes the one of the commands, `texts.py` has the
                    paragraphs before their tables, `markdown.py` writes the tables
    shipped.py      profiles and scenarios that come with the project
    template.py     a commented scenario to begin with

`python -m specfleet.reference` writes the pages; with `--check` it only says whether they are up to date.
"""
