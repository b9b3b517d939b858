"""What the arrays of the compiled loop hold: a record for each request, stream, station, way, message, event and so on.

Numba knows them by the types of the loop's arguments, names and places of all fields included: a change here has the
loop compiled anew.
"""

import numpy as np

WHOLE, SMALL, REAL, TRUTH = np.int64, np.int32, np.float64, np.bool_  # the less memory, the more of it is near

A_REQUEST = np.dtype([  # those of a stream one after the other
    ("goal", WHOLE),
    ("last_s", REAL),  # findings: its last commit, its first, and when it came
    ("first_s", REAL),
    ("joined_s", REAL),
    ("opens_s", REAL),
    ("number", WHOLE),
    ("prompt", WHOLE),
    ("prefill_s", REAL),  # mean time at its target
    ("draft_prefill_s", REAL),  # mean time at its drafter
    ("opening_bytes", WHOLE),
    ("leave_bytes", WHOLE),
    ("lengths_from", WHOLE),  # place of the first length that its rounds accept
    ("lengths_to", WHOLE),
])  # fmt: skip

A_STREAM = np.dtype([  # in the order of their first requests
    ("tag", SMALL),
    ("target", SMALL),  # its stations
    ("drafter", SMALL),  # -1 for none
    ("down", SMALL),  # the ways of its link
    ("up", SMALL),
    ("priority", SMALL),
    ("request", SMALL),  # the open one; between two, the one to come
    ("last", SMALL),  # its last request
    ("epoch", SMALL),
    ("committed", SMALL),  # tokens, prompt included
    ("drafted", SMALL),  # tokens of its last draft, 0 before the first one of a request
    ("drafted_at", SMALL),  # what was committed when that draft began
    ("work", SMALL),  # the kind of step that it waits for
    ("behind", SMALL),  # who is next in the queue after it, -1 for nobody
    ("length", SMALL),  # place of its next acceptance length
    ("lengths_to", SMALL),
    ("asked_s", REAL),  # when its last request for a draft arrived, and how long that was
    ("asked_bytes", WHOLE),
    ("draft", SMALL),  # its last draft among the findings
    ("cold", TRUTH),  # whether its drafter lacks its prefix
], align=True)  # fmt: skip

A_STATION = np.dtype([  # targets, then drafters; what every step touches is first, and together
    ("times", SMALL),  # row of `Means.step_s`
    ("steps", SMALL),  # source of the ratios of its steps
    ("prefills", SMALL),  # the same of its prefills
    ("first", SMALL),  # in its queue, -1 for nobody
    ("newest", SMALL),  # in its queue
    ("program", SMALL),  # the stream whose draft follows its prefill, -1 for none
    ("running", SMALL),  # kind of the running step
    ("stream", SMALL),  # whose that is
    ("tokens", SMALL),  # of that
    ("steps_started", SMALL),
    ("is_drafter", TRUTH),
    ("by_priority", TRUTH),  # whether the most urgent is served first
    ("queued", TRUTH),  # whether work was waiting when its last step ended
    ("delayed", TRUTH),  # whether the delay before its next step has passed
    ("pausing", TRUTH),  # in that delay
    ("queued_s", REAL),  # mean delays of its overhead
    ("woken_s", REAL),
    ("after_s", REAL),
    ("duration_s", REAL),  # of the running step, the delay after it included
    ("ending_s", REAL),  # that delay
    ("begun_s", REAL),  # when its running step began
    ("ended_s", REAL),  # when its last step ended
    ("idle_gap_s", REAL),  # of idleness before what it serves
    ("group_begun_s", REAL),  # when that began
    ("queued_ratios", SMALL),  # sources of the ratios of its delays
    ("woken_ratios", SMALL),
    ("after_ratios", SMALL),
    ("written", SMALL),  # rows
], align=True)  # fmt: skip

A_WAY = np.dtype([  # one direction of a link; its messages under way are a ring of `room` places from `start` on
    ("station", SMALL),  # who receives
    ("link", SMALL),  # place of its mean times
    ("jitter", SMALL),  # source of ratios
    ("start", SMALL),
    ("room", SMALL),
    ("oldest", SMALL),
    ("count", SMALL),
    ("last_s", REAL),  # when the last message arrives
], align=True)  # fmt: skip

A_LINK = np.dtype([  # mean times of ways; most are alike
    ("latency_s", REAL),
    ("s_per_byte", REAL),
])  # fmt: skip

A_MESSAGE = np.dtype([
    ("kind", SMALL), ("stream", SMALL), ("request", SMALL), ("bytes", WHOLE)
], align=True)  # fmt: skip

AN_EVENT = np.dtype([("time_s", REAL), ("order", WHOLE), ("event", WHOLE), ("subject", WHOLE)])

A_CLOCK = np.dtype([  # where the loop stands; there is one
    ("now_s", REAL),
    ("begins", WHOLE),  # the station that begins a step now, -1 for none
    ("events", WHOLE),  # to come
    ("scheduled", WHOLE),  # so far
    ("rows", WHOLE),  # written since they were last taken
    ("drafts", WHOLE),  # among the findings
    ("commits", WHOLE),
    ("prefills", WHOLE),
])  # fmt: skip
