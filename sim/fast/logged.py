"""The event table from the log of the compiled loop, column by column."""

from specfleet.sim.fast.compiled import compiled_loop
from specfleet.sim.fast.events import DONE, JOIN, REQUEST, START, Array

REALS = ("time_s", "duration_s", "idle_gap_s")
WHOLES = (
    "station", "event", "kind", "seq", "step", "tag", "request", "epoch", "base", "tokens", "goal", "accepted", "flag",
    "payload_bytes",
)  # fmt: skip


@compiled_loop
def expand(_code: Array, texts: Array, streams: int, parts: Array, blocks: Array, reals: Array, wholes: Array) -> None:
    """Write the rows of a log, shapes (REALS, rows) and (WHOLES, rows).

    - `streams`: of a closed loop.
    """
    row = 0
    for number in range(len(blocks)):
        block = blocks[number]
        event = block.event
        for within in range(block.parts):
            part = parts[block.first + within]
            request = part.request
            reals[0, row] = block.time_s
            reals[1, row] = block.duration_s if event == DONE else 0.0
            reals[2, row] = block.gap_s if event == START else 0.0
            wholes[0, row] = block.station
            wholes[1, row] = event
            wholes[2, row] = part.kind
            wholes[3, row] = block.seq + within
            wholes[4, row] = block.step
            wholes[5, row] = request % streams if streams > 0 else request
            wholes[6, row] = request
            wholes[7, row] = part.epoch
            wholes[8, row] = part.base
            wholes[9, row] = part.tokens
            wholes[10, row] = texts[request].goal if event == JOIN else 0
            wholes[11, row] = part.accepted if event == DONE else 0
            wholes[12, row] = 1 if event == REQUEST and part.epoch == 1 else 0
            wholes[13, row] = block.bytes
            row += 1
