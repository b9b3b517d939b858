"""Replayed targets: many in one light process without a model, for other hardware than this machine's.

A verification takes the time that the scenario gives for such a target; `answers.py` decides acceptance. Transport and
queueing are real. With a real drafter, drafting and acceptance are real too: its tokens are compared with recorded
text.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from engine.net.actions import HELLO_S, Action, Deliver, Rejected
from engine.net.clock import Margin, now_s
from engine.net.content import Content
from engine.net.handshake import Ping
from engine.net.socket_thread import TICK_S, wait_for_welcomes
from engine.node.node import HERE, Site, Stations, clients_of_drafters
from engine.node.worker import READ_S, STILL_S
from engine.node.write_ahead_log import open_log
from engine.replayed.answers import Continuation, Continued, Drawn, ReplayedOutcomes
from engine.replayed.target import ReplayedTarget
from fleet.errors import InputError
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.stations.messages import Join, Message
from fleet.stations.outcomes import Outcomes
from fleet.stations.station import Station


class ReplayedFleet(Stations):
    """Replayed targets of a fleet (all, or the given numbers) in one thread, with clients of their own.

    An event loop over their sockets and the ends of their steps.

    - `addresses`: see `clients_of_drafters`.
    - `continuations`: of all requests, for real drafters.
    """

    def __init__(
        self,
        fleet: Fleet,
        addresses: Mapping[int, str],
        numbers: Sequence[int] | None = None,
        continuations: Sequence[Continuation] = (),
        site: Site = HERE,
    ) -> None:
        super().__init__(fleet)
        self.life = life = site.life
        life.wait_until_back()
        self.answers: Callable[[Station], ReplayedOutcomes] = lambda _station: Continued(continuations)
        if fleet.drafters.kind == "replayed":
            self.answers = partial(Drawn, Outcomes(fleet))
        self.say = site.say
        self.numbers = range(fleet.verifiers.count) if numbers is None else numbers
        self.connections, self.sockets = clients_of_drafters(fleet, self.numbers, addresses, site)
        self.sockets.log = site.say
        self.targets: dict[int, ReplayedTarget] = {}
        self.log = open_log(life)
        self.inbox: deque[tuple[Deliver, float]] = deque()
        self.later: list[tuple[float, int, Deliver]] = []  # a heap of events by their time
        self.order = count()
        self.watched = fleet.verifiers.patience.patience_s > 0
        self.due_s = 0.0
        self.margin = Margin()
        self.stopping = False

    def stop(self) -> None:
        """End after the running step."""
        self.stopping = True

    def wait_for_welcomes(self, patience_s: float) -> None:
        """Wait until all clients are welcomed; else close the sockets."""
        try:
            wait_for_welcomes(self.connections, patience_s, self.say, lambda wait_s: self._turn(min(wait_s, HELLO_S)))
        except BaseException:
            self.sockets.close()
            raise

    def serve(self, zero_s: float) -> Log:
        """Decode all requests of all targets."""
        self.targets = {
            number: ReplayedTarget(
                self.fleet, number, self.answers, self._post, self._join, zero_s, self.log, self.life
            )
            for number in self.numbers
        }
        try:
            while zero_s > now_s():
                self._turn(zero_s - now_s())
            for target in self.targets.values():
                target.begin()
            while not (self.stopping or all(target.finished for target in self.targets.values())):
                self._finish_due()
                self._wait()
            self._carry_out(self.connections.close(now_s()), now_s())
        finally:
            self.sockets.close()
        return self.log

    def stations(self) -> list[RecordedStation]:
        """Return the stations, which share a log."""
        return [target.recorded for target in list(self.targets.values())]

    def _post(self, message: Message, content: Content, left_s: float) -> None:
        time_s = now_s()
        self._carry_out(self.connections.post(message, content, time_s, left_s), time_s)

    def _finish_due(self) -> None:
        time_s = now_s()
        for target in self.targets.values():
            target.ring(time_s)
        due = [target for target in self.targets.values() if target.running is not None and target.due_s <= time_s]
        for target in sorted(due, key=lambda target: target.due_s):
            self._turn(0.0)  # events before the end of a step go first
            target.finish()
        self._hand_over()

    def _turn(self, wait_s: float) -> bool:
        """Receive frames, or wait for one; send what is due. Return whether any has arrived."""
        frames = self.sockets.poll(wait_s)
        for frame in frames:
            self._carry_out(self.connections.receive(frame.port, frame.peer, frame.frame, frame.time_s), frame.time_s)
        time_s = now_s()
        if time_s >= self.due_s:
            self.due_s = time_s + TICK_S
            self._carry_out(self.connections.tick(time_s), time_s)
            self.sockets.tidy(())
        self._hand_over()
        return bool(frames)

    def _hand_over(self) -> None:
        """Deliver all events that are due."""
        while self.inbox or (self.later and self.later[0][0] <= now_s()):
            if self.inbox:
                action, time_s = self.inbox.popleft()
            else:
                time_s, _, action = heapq.heappop(self.later)
            target = self.targets[self.fleet.target_of(action.event.tag)]
            target.deliver(action.event, action.content, time_s, action.payload_bytes)

    def _carry_out(self, actions: Sequence[Action], time_s: float) -> None:
        for action in self.connections.carry_out(actions, self.sockets, time_s):
            if isinstance(action, Rejected):
                raise InputError(action.reason)
            if not isinstance(action, Deliver) or isinstance(action.event, Ping):
                continue
            if action.after_s:
                self._later(action, time_s + action.after_s)
            else:  # not at once: a target may be posting now
                self.inbox.append((action, time_s))

    def _join(self, join: Join, time_s: float) -> None:
        self._later(Deliver(join), time_s)

    def _later(self, action: Deliver, time_s: float) -> None:
        heapq.heappush(self.later, (time_s, next(self.order), action))

    def _wait(self) -> None:
        """Receive frames until shortly before the next event or tick."""
        dues_s = [target.due_s for target in self.targets.values() if target.running is not None]
        dues_s += [target.alarm_s() for target in self.targets.values() if self.watched]
        due_s = min(dues_s + [time_s for time_s, _, _ in self.later[:1]], default=None)
        before_s = now_s()
        wait_s = TICK_S if due_s is None else min(due_s - before_s - self.margin.s, TICK_S)
        if not self._turn(wait_s) and wait_s > 0:
            late_s = now_s() - before_s - wait_s
            self.margin.slept(late_s)
            if late_s > STILL_S:  # this process was stopped: earlier frames go first
                self._turn(READ_S)
