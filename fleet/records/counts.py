"""Counts of what a run has done so far, for those who watch it: frozen values that any thread or process may have."""

from collections.abc import Iterable, Mapping

import msgspec

from fleet.records.samples import PowerSample
from fleet.scenario.names import DRAFTER

EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECENT = 200  # waits of a target of which percentiles are taken


class Times(msgspec.Struct, frozen=True, gc=False):
    """How many times were at most each of EDGES_S, and not the one before; the last number: longer. `sum_s`: of all."""

    numbers: tuple[int, ...] = (0,) * (len(EDGES_S) + 1)
    sum_s: float = 0.0


class OfTarget(msgspec.Struct, frozen=True, gc=False):
    """Counts of one target (from 0).

    `sessions`, `waiting`: open, and in a buffer, now; `queued`: requests whose prefill has not begun. `rounds`:
    verifications that are known; `drafts`: those of them with drafted tokens; `drafted`: those tokens; `accepted[j]`:
    of how many drafts j tokens were accepted. `committed`: tokens. `opened`, `finished`: requests. `received_bytes`: of
    messages. `waits_s`: of the last RECENT requests for drafts, where that was asked for.
    """

    target: int
    sessions: int = 0
    waiting: int = 0
    rounds: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: tuple[int, ...] = ()
    committed: int = 0
    opened: int = 0
    finished: int = 0
    prompt_tokens: int = 0
    received_bytes: int = 0
    queued: int = 0
    waits_s: tuple[float, ...] = ()

    @property
    def accepted_tokens(self) -> int:
        """Drafted tokens that were accepted."""
        return sum(length * count for length, count in enumerate(self.accepted))


class OfStation(msgspec.Struct, frozen=True, gc=False):
    """Counts of one station: how long it has worked, a running step included, and its steps by kind: number, seconds.

    `sessions`, `waiting`: open, and in its buffer, now.
    """

    name: str
    busy_s: float = 0.0
    steps: Mapping[str, tuple[int, float]] = {}
    sessions: int = 0
    waiting: int = 0


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What has happened until `time_s` of a run: by target as drafters saw it, and as the targets did; by station.

    All but what is said to be so now, or lately, only grows.

    A drafter learns what a target has committed from its next request, and so neither of the first nor of the last
    tokens of a text; where it drafts ahead, it does not learn what was accepted. `waits`: of requests for a draft.
    `first`, `latency`: from a request's arrival to its first token, and to its last. `devices`: the newest samples of
    those that are measured.
    """

    time_s: float
    stations: tuple[OfStation, ...] = ()
    drafting: tuple[OfTarget, ...] = ()
    verifying: tuple[OfTarget, ...] = ()
    waits: Times = Times()
    first: Times = Times()
    latency: Times = Times()
    devices: tuple[PowerSample, ...] = ()

    @property
    def known(self) -> tuple[OfTarget, ...]:
        """Who knows most of each target: itself if it is here, else its drafters."""
        return self.verifying or self.drafting

    @property
    def committed(self) -> int:
        """Tokens of all targets."""
        return sum(one.committed for one in self.known)

    @property
    def drafters(self) -> tuple[OfStation, ...]:
        """The stations that draft for others."""
        return tuple(one for one in self.stations if one.name.startswith(DRAFTER))


def merged(parts: Iterable[Counts]) -> Counts:
    """Return the counts of several processes as those of one; of a target that two tell of, the sums."""
    told = list(parts)
    waits, first, latency = (_sum_of([getattr(one, name) for one in told]) for name in ("waits", "first", "latency"))
    return Counts(
        max((one.time_s for one in told), default=0.0),
        _stations_of(told),
        _together(target for one in told for target in one.drafting),
        _together(target for one in told for target in one.verifying),
        waits,
        first,
        latency,
        tuple({sample.device: sample for one in told for sample in one.devices}.values()),
    )


def over(counts: Counts) -> Counts:
    """Return the counts of a process that has ended: nothing of it is open any more."""
    replace = msgspec.structs.replace
    return replace(
        counts,
        stations=tuple(replace(one, sessions=0, waiting=0) for one in counts.stations),
        drafting=tuple(replace(one, sessions=0, waiting=0, queued=0) for one in counts.drafting),
        verifying=tuple(replace(one, sessions=0, waiting=0, queued=0) for one in counts.verifying),
    )


def _stations_of(parts: Iterable[Counts]) -> tuple[OfStation, ...]:
    """Return all stations; what one of several lives has done is added up."""
    by_name: dict[str, OfStation] = {}
    for station in (station for one in parts for station in one.stations):
        before = by_name.get(station.name, OfStation(station.name))
        by_name[station.name] = OfStation(
            station.name,
            before.busy_s + station.busy_s,
            {
                kind: (number + station.steps.get(kind, (0, 0.0))[0], seconds + station.steps.get(kind, (0, 0.0))[1])
                for kind, (number, seconds) in (dict.fromkeys(station.steps, (0, 0.0)) | dict(before.steps)).items()
            },
            before.sessions + station.sessions,
            before.waiting + station.waiting,
        )
    return tuple(by_name.values())


def _together(targets: Iterable[OfTarget]) -> tuple[OfTarget, ...]:
    by_number: dict[int, OfTarget] = {}
    for one in targets:
        other = by_number.get(one.target)
        by_number[one.target] = one if other is None else _both(one, other)
    return tuple(by_number[number] for number in sorted(by_number))


def _both(one: OfTarget, other: OfTarget) -> OfTarget:
    summed = {name: getattr(one, name) + getattr(other, name) for name in _SUMMED}
    longer, shorter = sorted((one.accepted, other.accepted), key=len, reverse=True)
    accepted = tuple(map(sum, zip(longer, shorter + (0,) * (len(longer) - len(shorter)), strict=True)))
    return OfTarget(one.target, accepted=accepted, waits_s=one.waits_s + other.waits_s, **summed)


def _sum_of(times: list[Times]) -> Times:
    return Times(
        tuple(map(sum, zip(Times().numbers, *(one.numbers for one in times), strict=True))),
        sum(one.sum_s for one in times),
    )


_SUMMED = (
    "sessions", "waiting", "rounds", "drafts", "drafted", "committed", "opened", "finished", "prompt_tokens",
    "received_bytes", "queued",
)  # fmt: skip
