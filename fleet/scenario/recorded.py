"""Recorded requests: traces and files of lengths in the forms of their publishers, recognised by columns."""

import csv
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import named, read_text, reason, shortened

MOST_TOKENS = 10**7  # of a text
LONGEST_S = 1e9  # of a trace: thirty years
LARGEST_ID = 1 << 60  # Python hashes smaller numbers apart
EPOCH_S = 9e8, 4.2e9  # times of day since 1970, from 1998 to 2103
UNITS = {1.0: "seconds", 1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}  # by their number in a second


class Form(NamedTuple):
    """Columns of a published form; its times are dates, or numbers with `per_s` of them in a second."""

    whose: str
    time: str
    prompt: str
    answer: str
    per_s: float = 1.0


OURS = Form("ours and Vidur's", "arrived_at", "num_prefill_tokens", "num_decode_tokens")
FORMS = (
    OURS,
    Form("Mooncake's", "timestamp", "input_length", "output_length", 1e3),
    Form("Azure's", "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Form("BurstGPT's", "Timestamp", "Request tokens", "Response tokens"),
)


class Recorded(NamedTuple):
    """Prompts and answers of a file in tokens, times of a trace, the first 0, and a note on what was changed.

    - `ids`: the ids of each prompt's blocks, where they are asked for and there are some.
    """

    texts: tuple[tuple[int, int], ...]
    arrived_s: tuple[float, ...]
    note: str
    ids: tuple[tuple[int, ...], ...] = ()


def read_recorded(path: Path, timed: bool, id_tokens: int = 0) -> Recorded:
    """Read a trace, or lengths alone, from a CSV file, JSON Lines or a JSON array.

    A trace is sorted by time. Rows without a token of prompt or answer are left out. The size of times since 1970
    says their unit. `id_tokens`: tokens that one of hash_ids names; 0 reads no ids, and a trace with them has to be in
    order. Raises InputError, one line, for a file that cannot be read, has other columns, or holds a wrong value.
    """
    what = "workload.arrivals.file" if timed else "workload.lengths"
    return _read(read_text(path, what), named(path, what), timed, id_tokens)


@lru_cache(maxsize=2)  # a run asks several times; the key is the content
def _read(text: str, origin: str, timed: bool, id_tokens: int) -> Recorded:
    rows = _json_rows(text, origin, timed) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text, origin, timed)
    form, count, kept = next(rows), 0, list[tuple[Any, ...]]()
    for line, (*values, named_blocks) in rows:
        try:
            tokens = _tokens(values[0], form.prompt), _tokens(values[1], form.answer)
            time = _time(values[2], form.time) if timed else 0.0
            ids = _ids(named_blocks, -(-tokens[0] // id_tokens), id_tokens) if id_tokens else ()
            if ids and kept and not isinstance(time, datetime) and time < kept[-1][0]:
                raise ValueError(f"{form.time} = {values[2]} is before the row above; needs rows in order of time")
        except ValueError as error:
            raise InputError(f"{origin}, line {line}: {error}") from error
        count += 1
        if all(tokens):
            kept.append((time, tokens, ids))
    if not kept:
        raise InputError(f"{origin}: none of its {count} rows has tokens of prompt and answer")
    arrived_s, notes = tuple[float, ...](), list[str]()
    if timed:
        kept, arrived_s, notes = _in_order(kept, form, origin)
    if len(kept) < count:
        notes.append(f"{count - len(kept)} of {count} rows have no token of prompt or answer, and are left out")
    if "hash_ids" in text and not id_tokens:
        notes.append(
            "prefixes that requests share (hash_ids) are computed in full: they need verifiers.prefix_cache, and "
            "workload.id_tokens where the file gives lengths alone"
        )
    elif "hash_ids" in text and text.lstrip()[:1] not in ("{", "["):
        notes.append("hash_ids of a CSV file are not read; JSON Lines have them")
    ids_of = tuple(ids for _, _, ids in kept)
    return Recorded(tuple(tokens for _, tokens, _ in kept), arrived_s, "; ".join(notes), ids_of if any(ids_of) else ())


def _in_order(kept: list[tuple[Any, ...]], form: Form, origin: str) -> tuple[list[Any], tuple[float, ...], list[str]]:
    """Return rows by time, their times in seconds from the first on, and notes on what was done."""
    dated, per_s = isinstance(kept[0][0], datetime), form.per_s
    if any(isinstance(time, datetime) != dated for time, *_ in kept):
        raise InputError(f"{origin}: {form.time} has dates and numbers; needs one of both")
    ordered = sorted(kept, key=itemgetter(0))
    first, notes = ordered[0][0], list[str]()
    if not dated:
        per_s = next((unit for unit in UNITS if EPOCH_S[0] <= first / unit < EPOCH_S[1]), per_s)
    if form is not OURS or per_s != form.per_s or dated:
        notes.append(f"read as {form.whose}, with times {'as dates' if dated else f'in {UNITS[per_s]}'}")
    if ordered != kept:
        notes.append("rows are sorted by time")
    arrived_s = tuple((time - first).total_seconds() if dated else (time - first) / per_s for time, *_ in ordered)
    if arrived_s[-1] > LONGEST_S:
        raise InputError(f"{origin}: spans {arrived_s[-1]:.4g} s; allowed: up to {LONGEST_S:g} s")
    return ordered, arrived_s, notes


def _form(names: Sequence[str], origin: str, timed: bool) -> tuple[Form, list[int]]:
    """Return the form of a file with these columns, and the places of prompt, answer and time in them."""
    known = [name.strip().lower() for name in names]
    for form in FORMS:
        wanted = [name.lower() for name in (form.prompt, form.answer, form.time)[: 3 if timed else 2]]
        if all(known.count(name) == 1 for name in wanted):
            return form, [known.index(name) for name in wanted]
    columns = "; or ".join(f"{', '.join(form[1:4] if timed else form[2:4])} ({form.whose})" for form in FORMS)
    raise InputError(f"{origin}: has the columns {shortened(list(names))}; needs {columns}")


def _csv_rows(text: str, origin: str, timed: bool) -> Iterator[Any]:
    """Yield the form, then line and values of each row of a CSV file with a header."""
    separator = max(",;\t", key=text.lstrip("\r\n ").partition("\n")[0].count)
    rows = csv.reader(text.splitlines(), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        head = next((row for row in rows if any(cell.strip() for cell in row)), [])
        form, places = _form(head, origin, timed)
        yield form
        for row in rows:
            if len(row) == len(head) and any(row):
                yield rows.line_num, [*(row[place].strip() for place in places), None]
            elif any(cell.strip() for cell in row):
                raise InputError(f"{origin}, line {rows.line_num}: has {len(row)} values; its head names {len(head)}")
    except csv.Error as error:
        raise InputError(f"{origin}, line {rows.line_num}: not CSV: {reason(error)}") from error


def _json_rows(text: str, origin: str, timed: bool) -> Iterator[Any]:
    """Yield the form by the first line's keys, then line and values of each line; an array is read as its entries."""
    names: list[str] = []
    if text.lstrip().startswith("["):
        with suppress(msgspec.DecodeError, RecursionError):
            text = "\n".join(msgspec.json.encode(one).decode() for one in msgspec.json.decode(text, type=list))
    for line, row in enumerate(text.split("\n"), start=1):
        if not row.strip():
            continue
        try:
            content = msgspec.json.decode(row)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{origin}, line {line}: not JSON: {reason(error)}") from error
        if not isinstance(content, dict):
            raise InputError(f"{origin}, line {line}: {shortened(content)}: needs JSON Lines, an object in each line")
        if not names:
            form, places = _form(list(content), origin, timed)
            names = [list(content)[place] for place in places]
            yield form
        yield line, [*(content.get(name) for name in names), content.get("hash_ids")]


def _number(value: Any, name: str, needed: str = "a number") -> float:
    """Return a value of JSON or the text of a cell as a number; ValueError for another one."""
    is_text = isinstance(value, str)
    with suppress(TypeError, ValueError, OverflowError):
        number = int(value) if is_text and value.isdecimal() else float(value)
        if math.isfinite(number) and not isinstance(value, bool) and not (is_text and "_" in value):  # 1_000 of Python
            return number
    raise ValueError(f"{name} = {shortened(value)}: needs {needed}")


def _tokens(value: Any, name: str) -> int:
    number = _number(value, name)
    if number == int(number) and 0 <= number <= MOST_TOKENS:
        return int(number)
    raise ValueError(f"{name} = {shortened(value)}: needs a whole number from 0 to {MOST_TOKENS}")


def _ids(value: Any, blocks: int, id_tokens: int) -> tuple[int, ...]:
    """Return the ids of a prompt's blocks; none if the row has no list."""
    ids = () if value is None else tuple(value) if isinstance(value, list) else (value,)
    if any(isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < LARGEST_ID for number in ids):
        raise ValueError(f"hash_ids = {shortened(value)}: needs a list of whole numbers from 0 to {LARGEST_ID - 1}")
    if value is not None and len(ids) != blocks:
        needed = f"needs {blocks}, one for each {id_tokens} tokens (workload.arrivals.id_tokens) of the prompt"
        raise ValueError(f"hash_ids has {len(ids)} ids; {needed}")
    return ids


def _time(value: Any, name: str) -> float | datetime:
    """Return a number of any unit, or a date such as 2023-11-16 18:15:46.6805900, in UTC unless it says otherwise."""
    if isinstance(value, str) and value[4:5] == "-":
        with suppress(ValueError):
            date = datetime.fromisoformat(value)
            return date if date.tzinfo else date.replace(tzinfo=UTC)
    return _number(value, name, "a number or a date")
