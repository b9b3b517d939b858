"""How much a calibration measures."""

import msgspec


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    prefills: tuple[int, ...] = ()  # tokens of prompts that are read beside those of `contexts`
    repeats: int = 5
    prompts: int = 72  # as many as a demo cell decodes, each with its pair there
    longest_gap_s: float = 0.1
    gap_rounds: int = 100  # of each pass
    warm_tokens: tuple[int, ...] = (0, 1, 2, 4)
    warm_rounds: int = 40
    loads: tuple[int, ...] = (1, 3)  # targets that load the drafter in part
    saturated_rounds: int = 300
    loaded_rounds: int = 150
    payloads_bytes: tuple[int, ...] = (64, 1024, 16 * 1024, 128 * 1024)
    pings: int = 60
    concurrent_targets: int = 3  # fleets of 1 .. so many targets run concurrently on one device
    sharing_requests: int = 12  # of each target that shares a device

    def up_to(self, prompt_tokens: int) -> "Effort":
        """Return the effort with prefills of so many tokens, and of half, where they are longer than all contexts."""
        longer = [tokens for tokens in (prompt_tokens // 2, prompt_tokens) if tokens > max(self.contexts)]
        return msgspec.structs.replace(self, prefills=tuple(longer))


QUICK = Effort(
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=5, prompts=48, longest_gap_s=0.05, gap_rounds=80,
    warm_tokens=(0, 2), warm_rounds=30, loads=(2,), saturated_rounds=200, loaded_rounds=150,
    payloads_bytes=(64, 16 * 1024), pings=20, concurrent_targets=2, sharing_requests=8,
)  # fmt: skip
