"""The pages of docs/reference/, written from the code.

`pages.py` makes those of keys, metrics, profile and records, `command_line.py` the one of the commands, `texts.py` has
the paragraphs before their tables, `markdown.py` writes the tables. `python -m specfleet.pages` writes them all; with
`--check` it only says whether they are up to date.
"""
