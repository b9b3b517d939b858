"""Who only asks how a node is doing: a few at a time, each for as long as it asks."""

from engine.net.actions import LEASE_S

MOST = 8  # at a time


class Watchers:
    """When each of them, by its connection's routing id, has asked last."""

    def __init__(self) -> None:
        self.asked_s: dict[bytes, float] = {}

    def admit(self, peer: bytes, now_s: float) -> bool:
        """Let somebody ask; False if there are enough of them."""
        if peer not in self.asked_s and len(self.asked_s) >= MOST:
            return False
        self.asked_s[peer] = now_s
        return True

    def tick(self, now_s: float) -> None:
        """Forget who has not asked for LEASE_S."""
        for peer in [peer for peer, asked_s in self.asked_s.items() if now_s - asked_s > LEASE_S]:
            self.forget(peer)

    def forget(self, peer: bytes) -> None:
        """Forget one."""
        self.asked_s.pop(peer, None)
