"""Bad input as a family: files of every kind that we read, damaged in every way that we could think of.

damage.py   what happens to bytes and places: cut, flipped, emptied, not UTF-8, a folder, no file
values.py   what happens to content: wrong types, numbers beyond all bounds, absent and extra keys, deep nesting
tables.py   the same for the columns, rows and headers of Parquet and CSV
typed.py    the same for what is typed behind a command: --set, --vary, other options
scenarios.py, good_files.py  good files: scenarios with what they name, and everything else
kinds.py    the kinds of files, each with a good one, and the command that reads it; reader_kinds.py, records of other
            engines; engine_kinds.py, those that only the engine reads
mutants.py  one mutant by its kind and number: made, run, judged, cleared away
law.py      one mutant against the law: refused in one line with status 2, or run rightly; within time and memory
results.py  what "rightly" means: numbers and files as they are documented
"""
