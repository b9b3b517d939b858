"""Bad input as a family: files of every kind that we read, damaged in every way that we could think of.

damage.py   what happens to bytes and places: cut, flipped, emptied, not UTF-8, a folder, no file
values.py   what happens to content: wrong types, numbers beyond all bounds, absent and extra keys, deep nesting
tables.py   the same for the columns, rows and headers of Parquet and CSV
kinds.py    the kinds of files, each with a good one, and the command that reads it
law.py      one mutant against the law: refused in one line with status 2, or run rightly; within time and memory
__main__.py several thousand mutants by one command, and their table
"""
