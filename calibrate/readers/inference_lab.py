"""inference-lab's trace of rounds (CSV): `commits,category,a0,a1,...`, a row a round.

`commits` is how many draft tokens were accepted, without the bonus token. `a0`, `a1`, ... are a signal of each drafted
token, empty beyond the draft's end: the drafter's confidence or, of an oracle, whether the token was accepted. It does
not say which rounds belong to one request.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from calibrate.readers.counts import Rounds, model_of, totals
from calibrate.readers.laws import at_most, same
from calibrate.readers.recording import Recording
from calibrate.readers.requests import MOST
from fleet.errors import InputError
from fleet.inputs.text import parsed, read_csv, read_lines, shortened


def read_inference_lab(files: Sequence[Path]) -> Recording:
    """Read traces; InputError, naming file, line, key and both values, where a row contradicts itself."""
    rounds: Rounds = Counter()
    for path in files:
        rows = list(_rows(path))
        for origin, commits, signals in rows:
            at_most(origin, "commits", commits, "the tokens that have a signal", len(signals))
            rounds[len(signals), commits] += 1
        if {value for _, _, signals in rows for value in signals} == {0.0, 1.0}:  # an oracle's
            for origin, commits, signals in rows:
                leading = next((place for place, value in enumerate(signals) if not value), len(signals))
                same(origin, "commits", commits, "the ones that a0, a1, ... begin with", leading)
    names = ", ".join(map(str, files))
    model, depth = model_of(rounds, names)
    count, accepted = totals(rounds)
    return Recording(
        format="inference-lab's trace of rounds",
        acceptance=model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        sources={"acceptance": f"`commits` of {count} rounds"},
        notes=("the signals (the drafter's confidences, or an oracle's) are not used",),
    )


def _rows(path: Path) -> Iterator[tuple[str, int, list[float]]]:
    """Yield name, commits and signals of each row."""
    names = _signals(path)
    for line, row in read_csv(path, ("commits", *names)):
        origin = f"{path}, line {line}"
        commits = parsed(row["commits"])
        if not isinstance(commits, int) or commits < 0:
            raise InputError(f"{origin}: commits = {shortened(row['commits'])}; allowed: whole numbers from 0")
        yield origin, commits, [_signal(origin, name, row[name]) for name in names if row[name].strip()]


def _signals(path: Path) -> tuple[str, ...]:
    """Return the names of the signals, in order: a0, a1, ..."""
    lines = read_lines(path)
    head = {name.strip() for name in lines[0][1].split(",")} if lines else set()
    names = tuple(f"a{place}" for place in range(min(len(head), MOST)))
    there = [name for name in names if name in head]
    if not there or there != list(names[: len(there)]):
        raise InputError(f"{path}: needs the columns commits, a0, a1, ...; has {shortened(sorted(head))}")
    return tuple(there)


def _signal(origin: str, name: str, text: str) -> float:
    value = parsed(text)
    if isinstance(value, str) or not 0 <= value <= 1:
        raise InputError(f"{origin}: {name} = {shortened(text)}; allowed: 0 to 1, or empty")
    return float(value)
