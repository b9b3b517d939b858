"""Signals of drafted tokens: acceptance probability, KL(p||q) and draft entropy, recorded or synthetic.

A recording is a Parquet file with the columns of SCHEMA, one row for each drafted place; the simulator plays back
whole sessions. Without a recording, a synthetic process replaces it: easy and hard regions of the text drive all
three signals.
"""

import io
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.inputs.parquet import read_table, schema_of
from specfleet.fleet.inputs.text import reason
from specfleet.fleet.policies.outcome import Token


class SignalRow(NamedTuple):
    """One row of a signal file: a drafted and verified place of a generated text.

    Keys:
        session (number): Number of the recorded text.
        place (number): The token's place in its session's generated text.
        ratio (share): min(1, p/q), the probability that the target accepts it.
        kld (nats): KL(p||q) there.
        entropy (nats): Entropy of the draft distribution there.
    """

    session: int
    place: int
    ratio: float
    kld: float
    entropy: float


MAX_NATS = 1e6  # a smaller ratio than exp(-1e6) cannot occur
SCHEMA = schema_of(SignalRow)

Unit = Annotated[float, Meta(gt=0, lt=1)]
STAY = 0.95  # probability that a region of synthetic signals continues for another token
MIN_DISTANCE = 0.01  # distance of a region's mean from 0 and 1
CONCENTRATION = 1.0  # concentration of the beta distribution of acceptance within a region
KLD_NOISE = 0.5  # sigma of the lognormal noise of its divergence
ENTROPY_NOISE = 1.0  # sigma of its lognormal entropy


class SignalFile(msgspec.Struct, frozen=True, tag="signals", tag_field="model", forbid_unknown_fields=True):
    """Recorded signals: a session plays one recording, then others if it is too short.

    Keys:
        file: A signal file (Parquet; records.md has its columns), found relative to the scenario's folder.
    """

    file: str


class Regional(msgspec.Struct, frozen=True, tag="synthetic-signals", tag_field="model", forbid_unknown_fields=True):
    """Synthetic signals: a Markov chain of easy and hard regions drives acceptance, divergence and entropy.

    The expected acceptance a of a place follows a beta distribution with a mean by its region. Divergence grows
    with the total variation 1 - a as 2 (1 - a)^2, Pinsker's bound, times lognormal noise. Entropy is lognormal.

    Keys:
        acceptance (share): The mean acceptance probability over both kinds of regions.
        gap (share): How far the mean of an easy region lies above it, and that of a hard one below; less where one of
            them would be nearer to 0 or 1 than 0.01.
        entropy (nats): Median of the draft distribution's entropy.
        coupling (1): How strongly entropy and acceptance go together: the correlation of the entropy's normal score
            with that of a, negated.
    """

    acceptance: Unit
    gap: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    entropy: Annotated[float, Meta(gt=0)] = 0.5
    coupling: Annotated[float, Meta(ge=0, le=1)] = 0.4


def signals_path(profile: Path) -> Path:
    """Return where a calibration writes the signals of drafted tokens: beside its profile, under its name."""
    return profile.with_suffix(".signals.parquet")


def synthetic(model: Regional, rng: np.random.Generator, block: int = 256) -> Iterator[Token]:
    """Yield the tokens of one session."""
    gap = max(min(model.gap, model.acceptance - MIN_DISTANCE, 1 - MIN_DISTANCE - model.acceptance), 0.0)
    easy = bool(rng.random() < 0.5)
    while True:
        changes = rng.random(block) >= STAY
        regions = np.logical_xor.accumulate(np.concatenate([[easy], changes[1:]]))
        easy = bool(regions[-1] ^ changes[0])
        means = model.acceptance + gap * np.where(regions, 1, -1)
        a = rng.beta(means * CONCENTRATION, (1 - means) * CONCENTRATION)
        kld = 2 * (1 - a) ** 2 * np.exp(KLD_NOISE * rng.standard_normal(block) - KLD_NOISE**2 / 2)
        score = (a - means) / math.sqrt(model.acceptance * (1 - model.acceptance) / (CONCENTRATION + 1))
        noise = -model.coupling * score + math.sqrt(1 - model.coupling**2) * rng.standard_normal(block)
        entropy = model.entropy * np.exp(ENTROPY_NOISE * noise)
        yield from map(Token, a.tolist(), kld.tolist(), entropy.tolist())


def recorded(model: SignalFile, rng: np.random.Generator) -> Iterator[Token]:
    """Yield the tokens of a recorded session, then of further sessions chosen at random.

    Whole sessions are the blocks of this bootstrap, which keeps the dependence within a text.
    """
    sessions = read_signals(Path(model.file))
    while True:
        yield from sessions[rng.integers(len(sessions))]


def read_signals(path: Path) -> tuple[tuple[Token, ...], ...]:
    """Read a signal file: the tokens of each session in order of place; cached until the file changes.

    Raises InputError, with the file's name, if it is missing, lacks a column or contains impossible values.
    """
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"acceptance.file {path}: cannot be read ({reason(error)})") from error
    return _read_signals(path.absolute(), (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=4)
def _read_signals(path: Path, _state: tuple[int, int, int]) -> tuple[tuple[Token, ...], ...]:
    what = "acceptance.file"
    table = read_table(path, SCHEMA, what)
    if not len(table):
        raise InputError(f"{what} {path}: needs rows; has none")
    frame = table.to_pandas().sort_values(["session", "place"])
    if frame[["session", "place"]].duplicated().any():
        raise InputError(f"{what} {path}: each session needs a row a place; one of them has two")
    for column, allowed, wrong in (
        ("ratio", "0 to 1", ~frame.ratio.between(0, 1)),
        ("kld", "0 to 1e6", ~frame.kld.between(0, MAX_NATS)),
        ("entropy", "0 to 1e6", ~frame.entropy.between(0, MAX_NATS)),
    ):
        if wrong.any():
            raise InputError(f"{what} {path}: {column} = {frame[column][wrong].iloc[0]}; allowed: {allowed}")
    return tuple(
        tuple(map(Token, part.ratio.tolist(), part.kld.tolist(), part.entropy.tolist()))
        for _, part in frame.groupby("session")
    )


def write_signals(sessions: list[list[Token]], path: Path) -> None:
    """Write the signals of sessions in order of place."""
    rows = [(number, place, *token) for number, tokens in enumerate(sessions) for place, token in enumerate(tokens)]
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in SCHEMA.names]
    content = io.BytesIO()
    pq.write_table(pa.table([pa.array(column) for column in columns], schema=SCHEMA), content, write_page_checksum=True)
    write_file(path, content.getvalue())
