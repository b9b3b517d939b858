"""Connects to a dask cluster at an address, without dask's log, and checks it before anything runs there."""

import logging
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

from experiments.sweep.cluster.parcels import unlike, versions
from fleet.errors import InputError

CONNECT_S = 5.0
MOST_PARTS = 1 << 16  # of a message
ANSWER_S = 60.0  # of all workers; they first import this package
START = "start one: dask scheduler, and on each machine: dask worker HOST:8786 --nworkers -1 --nthreads 1"
TALKERS = ("distributed", "tornado", "asyncio")


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster of workers with our versions; yield dask's client.

    Raises InputError where none answers within some seconds, none works there, or one has other versions.
    """
    client_of = _dask()
    _speaks(address)
    with _silence():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of versions, which we look at ourselves
                connect = partial(client_of, address, timeout=CONNECT_S, set_as_default=False, name="specfleet")
                client = _within(2 * CONNECT_S, connect)
        except Exception as error:  # of many kinds
            raise _no_scheduler(address, error) from error
        # asyncio would report dask's tasks of a lost scheduler much later, when they are collected.
        client.loop.asyncio_loop.set_exception_handler(lambda _loop, _context: None)
        try:
            _check(client, address)
            yield client
        finally:
            with suppress(OSError):
                client.close(timeout=CONNECT_S)


def failure(error: BaseException) -> str:
    """Say that a worker could not run its chunk."""
    said = " ".join(str(error).split()) or type(error).__name__
    return f"cannot run us ({said}); install the same specfleet there"


def _dask() -> Callable[..., Any]:
    """Import dask's client, which takes half a second."""
    try:
        return import_module("distributed").Client  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        name = error.name
        raise InputError(f"{name} is not installed; --cluster needs it: pip install 'specfleet[cluster]'") from error


def _speaks(address: str) -> None:
    """Raise InputError unless the listener speaks dask's protocol, which begins with a count of parts.

    Dask's client would wait for ever for a silent listener, and so would each later client.
    """
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("", "tcp", "tls") or not host or not port.isdecimal():
        raise InputError(f"--cluster {address}: allowed: HOST:PORT, tcp://HOST:PORT and tls://HOST:PORT")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as there:
            if scheme != "tls" and int.from_bytes(there.recv(8), "little") not in range(1, MOST_PARTS):
                raise OSError("who listens is none")
    except (OSError, OverflowError, UnicodeError) as error:
        raise _no_scheduler(address, error) from error


def _no_scheduler(address: str, error: Exception) -> InputError:
    said = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"--cluster {address}: no dask scheduler answers there ({said}); {START}")


def _check(client: Any, address: str) -> None:
    """Raise InputError unless there are workers, all of them with our versions."""
    try:
        there: Mapping[str, Any] = _within(ANSWER_S, lambda: client.run(versions, on_error="return"))
    except TimeoutError as error:
        raise InputError(
            f"--cluster {address}: not all of its workers say within {ANSWER_S:g} s what they are"
        ) from error
    if not there:
        raise InputError(f"--cluster {address}: has no worker; {START}")
    for worker, answer in there.items():
        refusal = failure(answer) if isinstance(answer, BaseException) else unlike(versions(), answer)
        if refusal:
            raise InputError(f"--cluster {address}: worker {worker} {refusal}")


def _within(limit_s: float, call: Callable[[], Any]) -> Any:
    """Return the result of a call; raise TimeoutError, and drop the call, if it takes longer."""
    came: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def work() -> None:
        try:
            came.put((call(), None))
        except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
            came.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = came.get(timeout=limit_s)
    except Empty:
        raise TimeoutError(f"no answer within {limit_s:g} s") from None
    if error is not None:
        raise error
    return result


@contextmanager
def _silence() -> Iterator[None]:
    """Silence dask's log of workers that join and leave; our own line reports them if needed."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in TALKERS]
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
