"""The pages of docs/reference/, written from docstrings: `python -m tools.reference`."""
