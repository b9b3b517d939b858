"""The pages of docs/reference/, made from the code: `python -m specfleet.reference` writes them, `--check` checks them.

pages.py          every page but that of the commands
command_line.py   the page of the commands
texts.py          the paragraphs before their tables
markdown.py       a little Markdown
"""
