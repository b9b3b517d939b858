"""Calls on the workers of a dask cluster, in chunks: each result comes once, even if workers fail."""

import math
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from experiments.sweep.cluster.connect import connected, failure
from experiments.sweep.cluster.parcels import ChunkResult, Parcel, run_chunk, versions
from fleet.errors import ClusterError
from fleet.inputs.text import read_bytes

LOOK_S = 1.0  # how often to list the workers while no result comes
ALONE_S = 30.0  # without any worker: until a nanny, or somebody, has started one again
MOST_CALLS = 64  # of a chunk: sending one costs 26 ms
ANSWER_S = 5.0  # until a lost answer is requested again: its worker may be gone
AGAIN = ("lost", "pending", "finished")  # of an answer that did not come: its worker died with it, another makes it
AHEAD = 2  # chunks a worker: it goes on while an answer travels


def on_cluster(
    call: Callable[..., Any], parcels: Sequence[Parcel], address: str, lost: Callable[..., Any]
) -> Iterator[tuple[int, Any]]:
    """Yield number and result of `call(*arguments, places)` for each parcel, as they come, from workers at an address.

    `places`: paths of the parcel's files on the worker, by path in the scenario. A call runs again on another worker if
    its worker is killed; one that kills worker after worker, also alone, gives `lost(*arguments)`. Raises InputError,
    before anything runs, if no cluster answers at the address, or a worker has other versions; ClusterError if the
    cluster is lost later.
    """
    if not parcels:
        return
    with connected(address) as client:
        sending = Sending(client, address, call, parcels)
        while sending.unfinished:
            sending.send()
            yield from sending.come(lost)


class Sending:
    """Calls that wait, calls that workers run, and the files sent to workers."""

    def __init__(self, client: Any, address: str, call: Callable[..., Any], parcels: Sequence[Parcel]) -> None:
        self.client, self.address = client, address
        self.call, self.parcels = call, parcels
        self.waiting = deque(range(len(parcels)))
        self.suspects: deque[int] = deque()  # calls that were with workers when they were killed, time and again
        self.sent: dict[Any, list[int]] = {}  # by future
        self.alone: Any = None  # the last future of a suspect
        self.finished: SimpleQueue[Any] = SimpleQueue()  # futures
        self.files: dict[str, tuple[str, Any]] = {}  # by path
        self.most = 1  # calls of a chunk: as many as came back done
        self.seen_s = time.monotonic()  # when there was a worker

    @property
    def unfinished(self) -> bool:
        """Whether any call has no result yet."""
        return bool(self.waiting or self.sent or self.suspects)

    def send(self) -> None:
        """Give every worker enough to do."""
        workers = self._workers()
        while self.waiting and len(self.sent) < AHEAD * workers:
            fair = math.ceil(len(self.waiting) / workers)  # towards the end, something for everybody
            self._send([self.waiting.popleft() for _ in range(min(self.most, fair))])
        if workers and self.suspects and not self.sent:
            self.alone = self._send([self.suspects.popleft()])

    def come(self, lost: Callable[..., Any]) -> Iterator[tuple[int, Any]]:
        """Wait for one chunk, LOOK_S at most, and yield numbers and results of its calls."""
        try:
            future = self.finished.get(timeout=LOOK_S)
        except Empty:
            return
        answer = self._answer(future) if future.status == "finished" else None
        if answer is None and future.status in AGAIN:
            future.add_done_callback(self.finished.put)
            return
        numbers, alone = self.sent.pop(future), future is self.alone
        if future.status == "error":
            error = future.exception()
            if type(error).__name__ != "KilledWorker":
                raise ClusterError(f"cluster {self.address}: a worker {failure(error)}")
            if alone:
                yield numbers[0], lost(*self.parcels[numbers[0]].arguments)
            else:  # running each alone shows which of them it was, if any
                self.suspects.extend(numbers)
            return
        if answer is None:
            raise ClusterError(f"cluster {self.address}: the scheduler is gone")
        if answer.refusal:
            raise ClusterError(f"cluster {self.address}: a worker that came later {answer.refusal}")
        yield from zip(numbers, answer.results, strict=False)
        left = numbers[len(answer.results) :]
        self.waiting.extendleft(reversed(left))
        self.most = len(answer.results) if left else min(2 * self.most, MOST_CALLS)

    def _workers(self) -> int:
        """Count workers; ClusterError where there have been none for long."""
        with suppress(OSError, ValueError):  # the scheduler is gone, or going
            if count := len(self.client.nthreads()):
                self.seen_s = time.monotonic()
                return count
        if time.monotonic() - self.seen_s > ALONE_S:
            raise ClusterError(f"cluster {self.address}: has had no worker for {ALONE_S:g} s")
        return 0

    def _send(self, numbers: list[int]) -> Any:
        chunk = [self.parcels[number] for number in numbers]
        files = {path: self._file(path) for parcel in chunk for path in parcel.paths}
        arguments = [parcel.arguments for parcel in chunk]
        future = self.client.submit(
            run_chunk, self.call, arguments, versions(), files, key=f"specfleet-{uuid.uuid4().hex}", pure=False
        )
        self.sent[future] = numbers
        future.add_done_callback(self.finished.put)
        return future

    def _file(self, path: str) -> tuple[str, Any]:
        """Return what names a file's content, and its future: the scheduler knows it, so it outlives every worker."""
        if path not in self.files:
            content = read_bytes(Path(path))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of large ones: each is sent once
                self.files[path] = sha256(content).hexdigest()[:16], self.client.submit(bytes, content, pure=False)
        return self.files[path]

    def _answer(self, future: Any) -> ChunkResult | None:
        """Fetch an answer; None if its worker died, which dask may take a while to find."""
        try:
            answer: ChunkResult = future.result(timeout=ANSWER_S)
        except TimeoutError:
            return None
        except Exception as error:  # whatever dask raises for what it has lost
            raise ClusterError(f"cluster {self.address}: the scheduler is gone") from error
        return answer
