"""A real target's node with the router's station inside: it calls all drafters, and nobody else routes."""

import threading
from collections.abc import Callable, Mapping, Sequence

from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content
from engine.runtime.device_lock import DeviceLock, no_lock
from engine.runtime.keys import Keys
from engine.runtime.router import RouteExecutor
from engine.runtime.verifier import VerifierNode
from engine.runtime.worker import Arrival, Stop, Worker
from fleet.records.recorded import Log, RecordedStation
from fleet.scenario.settled import Fleet
from fleet.stations.build import router_station
from fleet.stations.messages import Draft, DraftRequest, Instruction, Leave, View


class RoutingVerifierNode(VerifierNode):
    """The only target of a fleet, and its router, whose worker has a thread of its own.

    What the target asks for goes to the router's worker instead of a line; drafts and refusals come to the target
    past it, and news of drafters go to it. Its steps take no time.
    """

    def __init__(
        self,
        fleet: Fleet,
        prompts: Sequence[Sequence[int]],
        addresses: Mapping[int, str],
        lock: DeviceLock = no_lock,
        say: Callable[[str], None] = lambda _line: None,
        keys: Keys | None = None,
    ) -> None:
        super().__init__(fleet, 0, prompts, addresses, lock, say, keys, routes=True)
        assert self.sockets is not None
        self.routing = RouteExecutor()
        self.router = Worker(RecordedStation(router_station(fleet), "real"), self.routing, self.sockets.post)
        self.sockets.deliver = self._deliver
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def serve(self, zero_s: float) -> Log:
        """Serve as `Node.serve`; the log holds both stations' events."""
        self.router.zero_s = zero_s
        self.thread = threading.Thread(target=self._run_router, name="router", daemon=True)
        self.thread.start()
        log = super().serve(zero_s)
        if self.failure is not None:
            raise self.failure
        return log + self.router.recorded.log

    def close(self) -> None:
        """Let the router send what was asked for, and close the connections."""
        if self.thread is not None:
            self.router.inbox.put(Stop())
            self.thread.join()
        super().close()

    def _run_router(self) -> None:
        try:
            self.router.run()
        except BaseException as error:  # noqa: BLE001  (whatever it is, the node must end, and `serve` raise it)
            self.failure = error
            self.stop()

    def _deliver(self, arrival: Arrival) -> None:
        """Take what a drafter sent: news for the router, a draft or a refusal for the target. In the socket thread."""
        if isinstance(arrival.event, View):
            self.router.inbox.put(arrival)
            return
        if isinstance(arrival.event, Draft):
            self.routing.seen(arrival.event, arrival.content)
        self.worker.inbox.put(arrival)

    def _post(self, instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, DraftRequest):
            self.router.inbox.put(Arrival(instruction, content, now_s()))
        elif isinstance(instruction, Leave):
            self.router.inbox.put(Arrival(instruction, NOTHING, now_s()))
        else:
            super()._post(instruction, content)
