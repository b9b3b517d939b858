"""What things mean, read from the code: for `explain`, for `init`, and for the pages of `specfleet/reference.py`.

entries.py    reads docstrings and types into entries
render.py     writes entries for a terminal, as a commented scenario, and as Markdown
texts.py      the paragraphs of the pages
shipped.py    the profiles and scenarios that ship
"""
