"""The thread of a node that owns the sockets and the state of all its connections.

Its log has a limited rate, so that strangers and broken peers cannot fill it.
"""

import contextlib
import heapq
import math
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from specfleet.engine.net.actions import SERVER_PORT, Action, Deliver, Lost, Opened, Rejected
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.connections import ConnectionTable, Posted
from specfleet.engine.net.content import Content
from specfleet.engine.net.links import LossyLinks
from specfleet.engine.net.sockets import Sockets
from specfleet.fleet.errors import InputError
from specfleet.fleet.stations.messages import TO_DRAFTER, TO_VERIFIER

BURST, LINES_PER_S = 40, 0.2  # at once, and per second
REPEAT_S = 60.0  # between two times of the same line
MAX_LINES = 64  # distinct lines whose repeats are noticed


class RateLimitedLog:
    """Logs lines with `say`, at a limited rate. `dropped`: lines never logged; `left`: how many may be logged now."""

    def __init__(self, say: Callable[[str], None], now_s: float) -> None:
        self.say = say
        self.left, self.time_s = float(BURST), now_s
        self.logged_s: dict[str, float] = {}  # when each line was logged last
        self.dropped = 0

    def log(self, line: str, now_s: float) -> None:
        """Log a line; drop it if it is repeated within REPEAT_S or the rate is exceeded."""
        self.left = min(BURST, self.left + max(now_s - self.time_s, 0.0) * LINES_PER_S)
        self.time_s = now_s
        if self.left < 1.0 or now_s - self.logged_s.get(line, -math.inf) < REPEAT_S:
            self.dropped += 1
            return
        self.left -= 1.0
        self.logged_s.pop(line, None)
        if len(self.logged_s) >= MAX_LINES:
            del self.logged_s[next(iter(self.logged_s))]
        self.logged_s[line] = now_s
        self.say(line)


SAY_AFTER_S = 2.0  # of waiting for a drafter
TICK_S = 0.25  # between two checks of what is due
COUNT_NAMES = {  # of counts, in the last line of a node
    "malformed": "malformed messages", "out of place": "messages out of place", "repeated": "repeated messages",
    "denied": "denied Hellos", "silent": "peers that were silent",
}  # fmt: skip


class SocketThread(threading.Thread):
    """Delivers events from the network, and sends posted messages. An error in it calls `failed`, and ends the node."""

    def __init__(
        self,
        connections: ConnectionTable,
        sockets: Sockets,
        deliver: Callable[[tuple[float, Deliver]], None],
        failed: Callable[[], None],
        say: Callable[[str], None],
        lossy: LossyLinks | None = None,
    ) -> None:
        super().__init__(name="sockets", daemon=True)
        self.connections = connections
        self.sockets = sockets
        self.deliver = deliver
        self.failed = failed
        self.say = say
        self.lossy = lossy
        # with the time at which each left its station
        self.posted: deque[tuple[Posted, Content, float | None]] = deque()
        self.delayed: list[tuple[float, int, Posted, Content]] = []  # a heap of messages that a link fault delays
        self.numbers = count()
        self.news: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()  # of welcomed clients: None; and errors
        self.ending = False
        self.error: BaseException | None = None
        self.due_s = 0.0
        self.leaving: list[bytes] = []  # peers with closed connections; at the next tick all their frames are read
        self.log = RateLimitedLog(say, now_s())
        sockets.log = self._log
        if connections.server is not None and sockets.monitor is not None:
            connections.server.names, connections.server.log = sockets.monitor.names, self._log

    def post(self, message: Posted, content: Content, left_s: float | None = None) -> None:
        """Send a message that left its station at `left_s`, or now; without waiting."""
        self.posted.append((message, content, left_s))
        self.sockets.wake()

    def run(self) -> None:
        """Run until `end`."""
        try:
            while not self.ending:
                self._turn()
            self._send_posted()
            self._carry_out(self.connections.close(now_s()), now_s())
            self.say_counts()
        except BaseException as error:  # noqa: BLE001  (`end` raises it)
            self.error = error
            self.news.put(RuntimeError("the node's connections failed"))
            self.failed()
        finally:
            self.sockets.close()

    def wait_for_welcomes(self, patience_s: float) -> None:
        """Wait until all clients are welcomed, and say so if that takes long.

        InputError if one is rejected, or after `patience_s`; the error of the thread if there is one.
        """
        until_s, say_s = now_s() + patience_s, now_s() + SAY_AFTER_S
        while missing := self.connections.missing():
            time_s = now_s()
            if time_s >= until_s:
                raise InputError(f"no drafter answered at {missing.partition(' at ')[2]} within {patience_s:g} s")
            if time_s >= say_s:
                self.say(f"waits for {missing}")
                say_s = until_s
            with contextlib.suppress(queue.Empty):
                if (news := self.news.get(timeout=min(until_s, say_s) - time_s)) is not None:
                    raise news

    def end(self) -> None:
        """Send Bye and end the thread; raise its error, if any."""
        if self.is_alive():
            self.ending = True
            self.sockets.wake()
            self.join()
        if self.error is not None:
            raise self.error

    def _turn(self) -> None:
        for frame in self.sockets.poll(0.0 if self.posted else self._pause_s()):
            actions = self.connections.receive(frame.port, frame.peer, frame.frame, frame.time_s)
            self._carry_out(actions, frame.time_s)
        self._send_posted()
        time_s = now_s()
        if time_s >= self.due_s:
            self.due_s = time_s + TICK_S
            self._carry_out(self.connections.tick(time_s), time_s)
            for peer in self.leaving:
                self._carry_out(self.connections.lost(SERVER_PORT, peer, time_s), time_s)
            self.leaving = self.sockets.gone()
            self.sockets.tidy()

    def _log(self, line: str) -> None:
        self.log.log(line, now_s())

    def _send_posted(self) -> None:
        while self.posted:
            time_s = now_s()
            message, content, left_s = self.posted.popleft()
            if self.lossy is not None and isinstance(message, TO_VERIFIER):
                for due_s in self.lossy.arrivals_s(message.tag, "down", left_s or time_s):
                    heapq.heappush(self.delayed, (due_s, next(self.numbers), message, content))
            else:
                self._carry_out(self.connections.post(message, content, time_s, left_s), time_s)
        while self.delayed and self.delayed[0][0] <= now_s():
            time_s = now_s()
            left_s, _, message, content = heapq.heappop(self.delayed)
            self._carry_out(self.connections.post(message, content, time_s, left_s), time_s)

    def _pause_s(self) -> float:
        """Return the time until the next check, or the next delayed message."""
        return min(TICK_S, max(self.delayed[0][0] - now_s(), 0.0)) if self.delayed else TICK_S

    def _carry_out(self, actions: Sequence[Action], time_s: float) -> None:
        for action in self.connections.carry_out(actions, self.sockets, time_s):
            match action:
                case Deliver():
                    for at_s in self._arrivals_s(action, time_s):
                        self.deliver((at_s, action))
                case Opened():
                    self.news.put(None)
                    if action.back:
                        self._log(action.back)
                case Rejected():
                    self.news.put(InputError(action.reason))
                case Lost():
                    self._log(action.reason)

    def _arrivals_s(self, action: Deliver, time_s: float) -> Iterator[float]:
        """Yield when an event reaches the station: once, unless a link fault drops or repeats it."""
        if self.lossy is not None and action.payload_bytes and isinstance(action.event, TO_DRAFTER):
            for at_s in self.lossy.arrivals_s(action.event.tag, "up", time_s):
                yield at_s + action.after_s
        else:
            yield time_s + action.after_s

    def say_counts(self) -> None:
        """Print one line with the counts of what was refused and dropped."""
        server = self.connections.server
        counts = self.sockets.counts + (Counter() if server is None else server.counts)
        if self.log.dropped:
            counts["lines that were not logged"] = self.log.dropped
        if any(counts.values()):
            counted = ", ".join(
                f"{count} {COUNT_NAMES.get(what, what)}" for what, count in sorted(counts.items()) if count
            )
            self.say(f"refused or dropped: {counted}")
