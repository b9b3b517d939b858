"""Prefill servers apart from the decode servers: how many, and how the KV cache of a prompt travels."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specfleet.fleet.times.step_time import LinkTime


class Prefill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Servers that compute prompts alone, like the targets, which then only decode: prefill/decode disaggregation.

    Keys:
        count (targets): Number of prefill servers; requests go to them in turn.
        link: Link of each device of a prefill server, over which its share of the KV cache goes to a decode server,
            prompt after prompt. With a bandwidth it needs a profile with the bytes of a token, as estimates have.
        layers (layers): Layers that send their KV cache as soon as each is computed: all of the model where the engine
            overlaps. With 1 it leaves after the prompt, as by vLLM's NIXL connector.
        draft_cache: Whether the KV cache of a drafter on the target's device is "sent", too, as by SGLang, or
            "computed" again at the decode server, as by vLLM.
        first_round_drafts: Whether a prefill server drafts for the first round. Left out, that has no drafts, as in
            SGLang.
    """

    count: Annotated[int, Meta(ge=1, le=10**5)] = 1
    link: LinkTime = LinkTime()
    layers: Annotated[int, Meta(ge=1, le=10**4)] = 1
    draft_cache: Literal["sent", "computed"] = "computed"
    first_round_drafts: bool = False

    def sent_s(self, size_bytes: float, now_s: float, computing_s: float, free_s: float) -> float:
        """Return when the KV cache of a prompt has left, which ends at `now_s` after `computing_s` seconds of steps.

        All but the last layer's share may travel while the next ones are computed, once earlier prompts have left at
        `free_s`.
        """
        takes_s, hidden_s = size_bytes * self.link.s_per_byte, computing_s * (1 - 1 / self.layers)
        return max(max(now_s - hidden_s, free_s) + takes_s, now_s + takes_s / self.layers)
