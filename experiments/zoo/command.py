"""Survey all types: a table of those that are admitted, with what trying them found, and of those that are refused.

Exit status 1 where an admitted type is not what transformers computes.
"""

import argparse
from pathlib import Path

import msgspec
import pandas as pd
import torch
from transformers import __version__
from transformers.utils import logging

from experiments.terminal.exits import keeping
from experiments.terminal.printing import print_table, progress, remark
from experiments.zoo.species import VARIANTS
from experiments.zoo.survey import Row, names_of, survey
from experiments.zoo.texts import MODES
from fleet.files import check_writable, write_file


def main() -> int:
    """Try all types, or those that are named; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="of types or variants; else all")
    parser.add_argument("-o", "--out", type=Path, help="also write the rows here: .csv or .json")
    options = parser.parse_args()
    names = options.names or names_of()
    if unknown := sorted(set(names) - set(names_of())):
        parser.error(f"transformers {__version__} knows no causal language model {', '.join(unknown)}")
    if options.out and options.out.suffix not in {".csv", ".json"}:
        parser.error(f"-o {options.out}: give a name that ends in .csv or .json")
    if options.out:
        check_writable(options.out)
    with keeping(options.out):
        return tell(names, options.out)


def tell(names: list[str], out: Path | None) -> int:
    """Survey the types, print what came out, and write it; return the exit status."""
    torch.set_num_threads(1)  # tiny models
    logging.set_verbosity_error()
    rows = []
    with progress("zoo", len(names)) as advance:
        for row in survey(names):
            rows.append(row)
            advance(row.name)
    show(rows)
    if out:
        write(rows, out)
    wrong = [row.name for row in rows if not row.is_right]
    if wrong:
        remark(f"not what transformers computes: {', '.join(wrong)}")
    return 1 if wrong else 0


def show(rows: list[Row]) -> None:
    """Print the tables, and how many types stand in each."""
    admitted, refused = [row for row in rows if not row.reason], [row for row in rows if row.reason]
    print_table(
        f"admitted, held against transformers {__version__}",
        ("type", "largest difference of probabilities", "modes whose texts are equal", "others"),
        [
            (row.name, f"{row.difference:.0e}", f"{sum(row.texts.values())} of {len(row.texts)}", differing(row))
            for row in admitted
        ],
    )
    print_table("refused", ("type", "because of"), [(row.name, row.reason) for row in refused], texts=2)
    variants = sum(row.name in VARIANTS for row in admitted)
    print_table(
        "in all",
        ("", "number"),
        [
            ("types admitted", str(len(admitted) - variants)),
            ("variants of these", str(variants)),
            ("admitted, but not what transformers computes", str(sum(not row.is_right for row in admitted))),
            ("types refused", str(len(refused))),
            ("modes of a type", str(len(MODES))),
        ],
    )


def differing(row: Row) -> str:
    """Name the modes whose texts are not transformers' own."""
    return ", ".join(mode for mode, equal in row.texts.items() if not equal)


def write(rows: list[Row], out: Path) -> None:
    """Write all rows as JSON, or as CSV with a column for each mode."""
    if out.suffix == ".json":
        write_file(out, msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
        return
    flat = [
        {"type": row.name, "admitted": not row.reason, "reason": row.reason}
        | ({} if row.reason else {"largest_difference": row.difference, **row.texts})
        for row in rows
    ]
    table: str = pd.DataFrame(flat).to_csv(index=False)
    write_file(out, table)
