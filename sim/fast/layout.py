"""Records of the compiled loop: requests, streams, stations, link directions, messages, events, logs, sums.

They are part of the argument types of the loop.
"""

import numpy as np

WHOLE, SMALL, REAL, TRUTH = np.int64, np.int32, np.float64, np.bool_  # small types fit the cache

A_TEXT = np.dtype([  # a request, by number
    ("opens_s", REAL),
    ("prompt", SMALL),
    ("goal", SMALL),
    ("place", SMALL),  # of its prompt among all works of its target, since it arrived
    ("opening_bytes", SMALL),
    ("leave_bytes", SMALL),
], align=True)  # fmt: skip

A_WAY = np.dtype([  # one direction of a link; its messages are a ring of `room` places from `start` on
    ("station", SMALL),  # the receiver
    ("link", SMALL),  # number of its mean times
    ("jitter", SMALL),  # source of ratios
    ("start", SMALL),
    ("room", SMALL),
    ("oldest", SMALL),
    ("count", SMALL),
    ("last_s", REAL),  # arrival of the last message
], align=True)  # fmt: skip

A_LINK = np.dtype([  # distinct mean times of links
    ("latency_s", REAL),
    ("s_per_byte", REAL),
])  # fmt: skip

A_MESSAGE = np.dtype([
    *((name, SMALL) for name in ("kind", "stream", "request")),
    ("bytes", WHOLE),
    *((name, SMALL) for name in ("epoch", "base", "tokens")),
], align=True)  # fmt: skip

AN_EVENT = np.dtype([("time_s", REAL), ("order", WHOLE), ("event", WHOLE), ("subject", WHOLE)])

A_ROW = np.dtype([  # a stream at a serving target; of arrivals, an open request, or a free place
    ("target", SMALL),
    ("request", SMALL),  # the open request, or the next one
    ("epoch", SMALL),
    ("committed", SMALL),  # tokens, prompt included
    ("computed", SMALL),  # tokens of these in the KV cache
    ("drafts", SMALL),  # draft tokens that wait for verification
    ("blocks", SMALL),
    ("work", SMALL),  # kind of its next step, NO_STEP for none
    ("place", SMALL),  # of that work among all works of its target
    ("share", SMALL),  # tokens of its part of the running step, 0 for none
    ("share_drafts", SMALL),  # drafted ones of these
    ("behind", SMALL),  # next stream in the queue, or next free place, -1 for none
    ("length", SMALL),  # place of its next acceptance length
    ("lengths_to", SMALL),
    ("drawn", SMALL),  # lengths drawn for its request
    ("drafted_epoch", SMALL),  # its epoch at its last draft
    ("granted", TRUTH),  # whether it drafts after the running step, or elsewhere once a stale draft has come
    ("drafter", SMALL),  # elsewhere, -1 for none
    ("down", SMALL),  # direction of its link; the next one is the way up
    ("passed", SMALL),  # tokens by which the text is ahead of its draft
    ("requested", SMALL),  # committed tokens at its last draft request
    ("unanswered", SMALL),  # epoch of that request until its draft has come, else 0
    ("open_there", SMALL),  # its request that is open at its drafter, -1 for none; its state there
    ("epoch_there", SMALL),
    ("base_there", SMALL),
    ("tail_there", SMALL),
    ("behind_there", SMALL),  # next stream in the queue, -1 for none
    ("waits_there", TRUTH),
    ("begun", TRUTH),  # whether its request has been in a step
    ("table", SMALL),  # of its blocks in a prefix cache
    ("full", SMALL),  # of these, those with a content
    ("cold", TRUTH),  # whether its drafter needs a prefill
    ("catches_up", TRUTH),  # whether its last draft was accepted
    ("joined_s", REAL),
    ("first_s", REAL),
    ("ended_s", REAL),  # of its last request, negative before
    ("asked_s", REAL),  # of its draft: arrival of the request, wait until its group begins, end, arrival
    ("wait_s", REAL),
    ("drafted_s", REAL),  # negative before the first draft of a request
    ("arrived_s", REAL),
    ("at_target_s", REAL),  # of its last draft, time from its arrival to its verification; negative before that
], align=True)  # fmt: skip

A_SERVER = np.dtype([  # targets, then drafters, hot fields first
    ("free_blocks", WHOLE),
    ("unused", WHOLE),  # blocks of a prefix cache that were never used; its number among targets
    ("number", SMALL),
    ("evicts", TRUTH),  # whether the cache has a limit
    ("start", SMALL),  # of its places in `Slots`
    ("running", SMALL),  # rows; sessions in a drafter's group
    ("works", SMALL),  # rows with work
    ("members", SMALL),  # rows of the running step
    ("ended", SMALL),  # streams whose requests are complete, until their results leave
    ("first", SMALL),  # of the queue, -1 for none; requests that have not run yet follow it
    ("newest", SMALL),  # of the queue
    ("head", SMALL),  # first request of an arrival that has not run, and their number
    ("fresh", SMALL),
    ("works_made", SMALL),
    ("step", SMALL),  # kind of the running or planned step
    ("follows", SMALL),  # kind of the draft step that follows, NO_STEP for none
    ("source", SMALL),  # of the ratio of the planned step
    ("logged", SMALL),  # first part of the running step in the log
    ("steps_started", SMALL),
    ("written", SMALL),  # rows of the event table
    ("is_drafter", TRUTH),
    ("is_busy", TRUTH),  # whether a step runs
    ("is_planned", TRUTH),  # whether the next step is planned, but not drawn
    ("queued", TRUTH),  # whether work was waiting at the end of its last step
    ("delayed", TRUTH),  # whether the delay before its next step is over
    ("pause", WHOLE),  # order of the event that ends that delay, -1 for none
    ("verify", SMALL),  # laws of its steps
    ("prefill", SMALL),
    ("decode", SMALL),
    ("draft", SMALL),
    ("draft_prefill", SMALL),
    ("verify_ratios", SMALL),  # sources of the ratios of its steps
    ("prefill_ratios", SMALL),
    ("decode_ratios", SMALL),
    ("pass_ratios", SMALL),
    ("draft_ratios", SMALL),
    ("queued_ratios", SMALL),  # and of its delays
    ("woken_ratios", SMALL),
    ("after_ratios", SMALL),
    ("queued_s", REAL),  # mean delays of its overhead
    ("woken_s", REAL),
    ("after_s", REAL),
    ("mean_s", REAL),  # of the planned step
    ("duration_s", REAL),  # of the running step, the delay after it included
    ("ending_s", REAL),  # that delay
    ("begun_s", REAL),  # start of the running step
    ("ended_s", REAL),  # end of the last step
    ("idle_gap_s", REAL),  # idle time before the running step
], align=True)  # fmt: skip

# A block of a prefix cache; its neighbours in the queue of free blocks, and among those with its content.
A_CACHED = np.dtype([(name, SMALL) for name in ("users", "content", "before", "after", "older", "newer")])

# What blocks hold: the content before it, the blocks that hold it, and the next one in its bucket, or among dead ones.
A_CONTENT = np.dtype([("source", WHOLE), *((name, SMALL) for name in ("before", "oldest", "newest", "next"))])

# Blocks that were ever used, their number from which on there may be too few, contents that ever were, the newest dead
# one, and tables that no row has.
A_CACHE_STATE = np.dtype([(name, WHOLE) for name in ("blocks", "enough", "contents", "dead", "spares")])

A_LAW = np.dtype([  # a StepTime
    *((name, REAL) for name in (
        "base_s", "per_token_s", "per_context_token_s", "per_token_context_s", "per_row_s", "per_row_token_s",
        "per_row_context_s", "several_s", "several_per_token_s",
    )),
    ("roofline", WHOLE),  # -1 for none
])  # fmt: skip

A_ROOFLINE = np.dtype([
    ("sharpness", REAL),
    ("host_s", REAL),
    ("in_turn", TRUTH),
    ("first", WHOLE),  # of its points, and their number
    ("points", WHOLE),
    ("attention", WHOLE),  # first kind of its attention, and their number
    ("kinds", WHOLE),
], align=True)  # fmt: skip

A_POINT = np.dtype([("tokens", REAL), ("pass_s", REAL)])

AN_ATTENTION = np.dtype([
    (name, REAL) for name in ("read_s", "pair_s", "window", "long_from", "long_pair", "long_write")
])  # fmt: skip

# A row's part of a step, or a request that joins.
A_PART = np.dtype([(name, SMALL) for name in ("stream", "request", "epoch", "base", "tokens", "accepted", "kind")])

A_BLOCK = np.dtype([  # rows of the event table at one time: a join, a message, a start or an end of a step
    ("time_s", REAL),
    ("duration_s", REAL),
    ("gap_s", REAL),  # idle time before the step
    ("bytes", WHOLE),  # of a message
    *((name, SMALL) for name in ("station", "seq", "event", "step")),
    ("first", SMALL),  # of its parts, and their number
    ("parts", SMALL),
], align=True)  # fmt: skip

A_SERVING_CLOCK = np.dtype([  # state of the loop; one record
    ("now_s", REAL),
    ("begins", WHOLE),  # station that starts a step now, -1 for none
    ("events", WHOLE),  # in the heap
    ("arriving", WHOLE),  # requests or conversations that have not arrived, and the next one
    ("oldest", WHOLE),
    ("free", WHOLE),  # first free row, -1 for none, and their number
    ("frees", WHOLE),
    ("scheduled", WHOLE),  # events up to now
    ("logs", WHOLE),  # 1 if it logs rows, not only the parts of running steps
    ("parts", WHOLE),  # of the log
    ("blocks", WHOLE),
    ("first_done_s", REAL),  # when the first stream ended its last request
])  # fmt: skip

A_SAMPLE = np.dtype([("time_s", REAL), ("value", REAL), ("number", WHOLE)])  # a value, and its number among all

A_STATE = np.dtype([  # of a table of sums, or of a sample
    ("now_s", REAL),  # the present moment
    ("row", WHOLE),  # the present row, -1 for none; values in the sample
    ("moments", WHOLE),  # in this row; values up to now
    ("most", WHOLE),  # moments of a row; halvings of the sample
])  # fmt: skip

A_HOME = np.dtype([(name, SMALL) for name in ("target", "drafter", "down")])  # of an arrival: stations, and link
