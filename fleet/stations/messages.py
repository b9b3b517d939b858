"""Messages between stations, and events of the world, as typed structs: the events of `station.py`.

The same structs go through the simulated links and, encoded by msgspec, over the wire. They carry lengths only. Token
ids and draft distributions travel beside them as opaque payload, so decisions never depend on content. Each message
names its decoding stream by (tag, request), its state by epoch, and its prefix by the committed length `base`. A
stale or repeated message is therefore recognised and changes nothing.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.outcome import Outcome

Number = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]  # no honest fleet exceeds it, and every column can store it
LargeNumber = Annotated[int, Meta(ge=-1, le=(1 << 62) - 1)]  # epochs and numbers of views also count restarts


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happens to a station; `tag` names the stream in the whole fleet."""

    tag: Number
    request: Number


class Join(Event, tag="join", frozen=True, gc=False):
    """A user's request reaches its verifier: decode `new_tokens` after a prompt of `prompt_tokens`.

    - `identity`: which parts of its text others have, too (`fleet/policies/blocks.py`).
    - `computed`: tokens of the prompt that come with their KV cache. `drafted`: tokens that come with a draft of them.
    """

    prompt_tokens: int
    new_tokens: int
    priority: int = 0
    identity: tuple[int, ...] = ()
    computed: Number = 0
    drafted: Number = 0


class DraftRequest(Event, tag="draft-request", frozen=True, gc=False):
    """Verifier to drafter: the verified prefix is `base` tokens long, draft from there.

    - `opening`: whether it is the first one of a request. The drafter may refuse it, and has to prefill the prefix.
    - `tokens`: the depth granted by the verifier; negative: the drafter decides.
    """

    epoch: LargeNumber
    base: Number
    opening: bool = False
    priority: Number = 0
    tokens: Number = -1


class Draft(Event, tag="draft", frozen=True, gc=False, omit_defaults=True):
    """Drafter to verifier: `tokens` that continue the prefix of length `base`; `queued`: requests behind, if asked."""

    epoch: LargeNumber
    base: Number
    tokens: Number
    queued: Number = 0


class Refusal(Event, tag="refusal", frozen=True, gc=False, omit_defaults=True):
    """Refusal of a drafter: the target decodes this request alone.

    - `epoch`: first epoch of the refused opening's era; 0 unless a drafter was given up before.
    """

    reason: str
    epoch: LargeNumber = 0


class Leave(Event, tag="leave", frozen=True, gc=False, omit_defaults=True):
    """Verifier to drafter: the request is finished, its cache can be released.

    With an `epoch`, a session that opened again in a later epoch stays.
    """

    epoch: LargeNumber = 0


class Overdue(Event, tag="overdue", frozen=True, gc=False):
    """The draft requested in that epoch timed out, or its drafter is lost."""

    epoch: LargeNumber


class Retry(Event, tag="retry", frozen=True, gc=False):
    """It is time to retry a drafter that did not answer, or it is back."""


class View(msgspec.Struct, tag="view", frozen=True, gc=False):
    """Drafter to router: its waiting work. `tag` is the drafter's number, `request` the number of the view.

    - `waiting`: sessions in the buffer and in the running step.
    """

    tag: Number
    request: LargeNumber
    waiting: Number


class Restarted(msgspec.Struct, tag="restart", frozen=True, gc=False):
    """The station is fresh, after the `incarnation`-th restart of its process, from 1."""

    incarnation: int


class StepDone(msgspec.Struct, tag="done", frozen=True, gc=False):
    """The device finished the running step; one outcome for each member.

    `duration_s` is read on the device's clock.
    """

    step: int
    outcomes: tuple[Outcome, ...]
    duration_s: float


Message = DraftRequest | Draft | Refusal | Leave | View
StationEvent = Join | Message | Overdue | Retry | Restarted | StepDone


class Released(msgspec.Struct, frozen=True, gc=False):
    """Instruction: the key-value cache of `tag` at this station is no longer needed."""

    tag: int
    request: int


class Finished(msgspec.Struct, frozen=True, gc=False):
    """Instruction: the request is complete; its user may send the next one."""

    tag: int
    request: int


class Routed(msgspec.Struct, frozen=True, gc=False):
    """Instruction: send `message` to drafter number `drafter`."""

    tag: int
    request: int
    drafter: int
    message: DraftRequest | Leave


class Ignored(msgspec.Struct, frozen=True, gc=False):
    """A stale, repeated or unexpected message was dropped, with the reason."""

    event: StationEvent
    reason: str


Instruction = Message | Released | Finished | Routed | Ignored

TO_DRAFTER = (DraftRequest, Leave)
TO_VERIFIER = (Draft, Refusal)
