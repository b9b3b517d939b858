"""Calls on a Dask cluster: results as they finish, and a line for each worker that is lost."""

import logging
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from itertools import islice
from time import monotonic
from typing import Any

import distributed

from specfleet.experiments.jobs import code
from specfleet.fleet.errors import InputError, NodeDiedError
from specfleet.fleet.inputs.text import shortened

LOG = logging.getLogger("specfleet")
AHEAD = 4  # groups in flight for each thread of the cluster, so that no worker waits for this process
CONNECT_S = 20.0
GROUP_S, MAX_GROUP = 0.5, 64  # short calls go together: so long, so many at most
COUNTED_S = 1.0  # between two counts of the cluster's threads
GOES_ON = "what is done is kept; the same command goes on from there"
Call = tuple[int, tuple[Any, ...]]  # its place, and its arguments


def finished(call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], address: str) -> Iterator[tuple[int, Any]]:
    """Yield the place and the result of each call, as they finish; few are in flight at once.

    Dask repeats the calls of a lost worker. A call that loses several is left out, and named when all others are done.
    Raises InputError where no scheduler answers, or a worker has other code; NodeDiedError where the scheduler is lost.
    """
    with closing(_answers(call, arguments, address)) as answers:
        for place, result, error in answers:
            if error is not None:
                raise error
            yield place, result


def _answers(
    call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], address: str
) -> Generator[tuple[int, Any, Exception | None], None, None]:
    """Yield the place of each call with its result or its error. Short calls go in groups."""
    calls, in_flight, suspects, lost = enumerate(arguments), dict[Any, list[Call]](), list[Call](), dict[int, str]()
    with _connected(address) as client:
        running, wanted, counted_s, size = distributed.as_completed(loop=client.loop), 0, -COUNTED_S, 1
        while True:
            if monotonic() - counted_s >= COUNTED_S:
                wanted, counted_s = AHEAD * max(sum(client.nthreads().values()), 1), monotonic()
            fresh = _groups(calls, size, wanted - len(in_flight)) if 2 * len(in_flight) <= wanted else []
            if not (fresh or in_flight) and suspects:
                fresh = [[suspects.pop()]]  # alone: a worker's end counts against all that it was given
            if fresh:
                running.update(sent := _sent(client, call, fresh))
                in_flight |= sent
            if not in_flight:
                break
            batch = running.next_batch()
            done = [future for future in batch if future.status == "finished"]
            for future, (answers, took_s) in zip(done, client.gather(done), strict=True):
                size = int(min(max(GROUP_S * len(answers) / max(took_s, 1e-9), 1), MAX_GROUP))
                for (place, _), answer in zip(in_flight.pop(future), answers, strict=True):
                    lost.pop(place, None)
                    yield place, *answer
            for future in set(batch).difference(done):
                suspects += _suspects(future.exception(), in_flight.pop(future), lost)
    if lost:
        raise NodeDiedError(f"--cluster {address}: workers die of {', '.join(lost.values())}; {GOES_ON}")


def _groups(calls: Iterator[Call], size: int, most: int) -> list[list[Call]]:
    return list(filter(None, [list(islice(calls, size)) for _ in range(most)]))


def _sent(client: Any, call: Callable[..., Any], groups: list[list[Call]]) -> dict[Any, list[Call]]:
    """Send groups of calls to the cluster; return each by its future."""
    tasks = [(call, [given for _, given in group], code()) for group in groups]
    return dict(zip(client.map(_at_worker, *zip(*tasks, strict=True), pure=False), groups, strict=True))


def _suspects(error: Exception, group: list[Call], lost: dict[int, str]) -> list[Call]:
    """Return the calls of a lost worker that run once more, and add all to `lost`."""
    if not isinstance(error, distributed.KilledWorker):
        raise NodeDiedError(f"cluster: {error}; {GOES_ON}")
    again = [(place, given) for place, given in group if place not in lost]
    lost |= {place: shortened(str(given[0]), quoted=False) for place, given in group}
    return again


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at the address; Dask's own messages are left to our lines."""
    theirs = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for logger in theirs:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False, name="specfleet")
            except (OSError, ValueError) as error:
                raise InputError(f"--cluster {address}: no scheduler answers there ({error})") from error
            with client:
                client.subscribe_topic("all", _tell)
                if not client.nthreads():
                    LOG.warning("cluster %s has no worker yet; waiting for the first", address)
                yield client
    except (OSError, CancelledError) as error:
        raise NodeDiedError(f"--cluster {address}: the scheduler is lost ({error}); {GOES_ON}") from error
    finally:
        for logger in theirs:
            logger.disabled = False


def _tell(event: tuple[float, Any]) -> None:
    """Say that a worker is lost."""
    _, message = event
    if isinstance(message, dict) and message.get("action") == "remove-worker" and not message.get("expected"):
        LOG.warning("worker %s is lost; what it ran runs elsewhere", message["worker"])


def _at_worker(
    call: Callable[..., Any], group: list[tuple[Any, ...]], wanted: str
) -> tuple[list[tuple[Any, Exception | None]], float]:
    """Return each call's result, or its error, and the time of all; what a worker raises itself is the cluster's."""
    begun_s = monotonic()
    return [_answer(call, given, wanted) for given in group], monotonic() - begun_s


def _answer(call: Callable[..., Any], given: tuple[Any, ...], wanted: str) -> tuple[Any, Exception | None]:
    if code() != wanted:
        return None, InputError(
            f"worker {distributed.get_worker().address}: has other code, {code()}; here: {wanted}; install the same"
        )
    try:
        return call(*given), None
    except Exception as error:  # noqa: BLE001  (raised again where its result is asked for)
        return None, error
