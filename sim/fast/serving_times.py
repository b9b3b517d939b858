"""Mean times of the steps of serving targets and of their drafters, added in the order of `fleet.times`.

They depend on all rows of a step, so the loop computes them itself.
"""

from specfleet.sim.fast.compiled import compiled, compiled_inline
from specfleet.sim.fast.events import CHUNK, DECODE, PREFILL, VERIFY, Array, Record, interpolated
from specfleet.sim.fast.serving_state import MIXED, Laws, Slots


@compiled
def products_s(laws: Laws, roofline: Record, fed: float) -> float:
    """Return the time of a pass without attention, as `Roofline.products_s`."""
    low, high = 0, roofline.points
    while low < high:
        middle = (low + high) // 2
        if fed < laws.points[roofline.first + middle].tokens:
            high = middle
        else:
            low = middle + 1
    place = roofline.first + min(max(low, 1), roofline.points - 1)
    left, right = laws.points[place - 1], laws.points[place]
    share = max(fed - left.tokens, 0.0) / (right.tokens - left.tokens)
    return float(left.pass_s + share * (right.pass_s - left.pass_s))


@compiled
def work_s(kind: Record, longest: float, fed: float, rows: float, context: float) -> tuple[float, float]:
    """Return the time of reading and of computing of one kind of attention, as `AttentionTime.work_s`."""
    itself, attended = (longest + 1) / 2, context
    if kind.window > 0:
        itself, attended = min(itself, kind.window), min(context, kind.window)
    if 0 < kind.long_from <= longest:
        long_s = kind.long_pair * kind.pair_s * fed * (attended + itself)
        return kind.read_s * (rows * attended + kind.long_write * fed), long_s
    return kind.read_s * (rows * attended + fed), kind.pair_s * fed * (attended + itself)


@compiled
def roofline_s(laws: Laws, roofline: Record, tokens: float, context: float, rows: float, row_tokens: float) -> float:
    """Return the mean time in seconds, as `Roofline.mean_s`."""
    if tokens <= 0:
        return 0.0
    fed = tokens + row_tokens
    longest, passes = tokens, 1.0
    if roofline.in_turn:
        longest, fed, passes, context = 1.0, fed / tokens, tokens, context + (tokens - 1) / 2
    device_s, p = products_s(laws, roofline, fed), roofline.sharpness
    for place in range(roofline.attention, roofline.attention + roofline.kinds):
        read_s, compute_s = work_s(laws.attention[place], longest, fed, rows, context)
        device_s += (read_s**p + compute_s**p) ** (1 / p)
    return float(passes * max(device_s, roofline.host_s))


@compiled
def rows_s(laws: Laws, number: int, tokens: float, context: float, rows: float, row_tokens: float) -> float:
    """Return the time of the rows beyond the first, as `StepTime.rows_s`."""
    if rows == 1:
        return 0.0
    law = laws.laws[number]
    several_s = law.several_s + law.several_per_token_s * tokens
    further_s = (law.per_row_s + law.per_row_context_s * context) * (rows - 1)
    added_s = several_s + further_s + law.per_row_token_s * row_tokens
    if law.roofline >= 0:
        roofline = laws.rooflines[law.roofline]
        alone_s = roofline_s(laws, roofline, tokens, context, 1.0, 0.0)
        added_s += roofline_s(laws, roofline, tokens, context, rows, row_tokens) - alone_s
    return float(added_s)


@compiled
def law_s(laws: Laws, number: int, tokens: float, context: float, rows: float, row_tokens: float) -> float:
    """Return the mean time in seconds, as `StepTime.mean_s`."""
    law = laws.laws[number]
    single_s = law.base_s + law.per_token_s * tokens + law.per_context_token_s * context
    single_s += law.per_token_context_s * tokens * context
    if law.roofline >= 0:
        single_s += roofline_s(laws, laws.rooflines[law.roofline], tokens, context, 1.0, 0.0)
    return float(single_s + rows_s(laws, number, tokens, context, rows, row_tokens))


@compiled_inline
def timed_s(laws: Laws, number: int, slots: Slots, start: int, members: int) -> float:
    """Return the mean time of a step of one kind, as `timed` of `fleet.times.durations`."""
    tokens, context, fed = 0.0, 0.0, 0.0
    for place in range(start, start + members):
        tokens, context = max(tokens, slots.fed[place]), max(context, slots.context[place])
        fed += slots.fed[place]
    law, further_s = laws.laws[number], 0.0
    if members > 1:
        further_s = rows_s(laws, number, tokens, context, float(members), fed - tokens)
    if law.roofline >= 0:
        return law_s(laws, number, tokens, context, 1.0, 0.0) + further_s
    single_s = law.base_s + law.per_token_s * tokens
    single_s += (law.per_context_token_s + law.per_token_context_s * tokens) * context
    return float(single_s + further_s)


@compiled
def one_pass_s(laws: Laws, every: int, last: int, slots: Slots, start: int, count: int, logits: int) -> float:
    """Return the time of one pass by rooflines, as `one_pass_s` of `fleet.times.mixed`."""
    every_logit, last_logit = laws.rooflines[laws.laws[every].roofline], laws.rooflines[laws.laws[last].roofline]
    fed, p = 0.0, every_logit.sharpness
    for place in range(start, start + count):
        fed += slots.fed[place]
    device_s = products_s(laws, last_logit, fed)
    if logits > 0:
        device_s += products_s(laws, every_logit, float(logits)) - products_s(laws, last_logit, float(logits))
    for number in range(every_logit.attention, every_logit.attention + every_logit.kinds):
        kind = laws.attention[number]
        read_s, compute_s = 0.0, 0.0
        for place in range(start, start + count):
            reading_s, computing_s = work_s(kind, slots.fed[place], slots.fed[place], 1.0, slots.context[place])
            read_s += reading_s
            compute_s += computing_s
        device_s += (read_s**p + compute_s**p) ** (1 / p)
    return float(max(device_s, every_logit.host_s))


@compiled_inline
def pass_s(laws: Laws, target: Record, slots: Slots) -> float:
    """Return the mean time of a step of several rows, as `pass_s` of `fleet.times.mixed`."""
    start, members, verify = target.start, target.members, target.verify
    if laws.laws[verify].roofline >= 0 and laws.laws[target.prefill].roofline >= 0:
        logits = 0
        for place in range(start, start + members):
            kind = slots.kinds[place]
            logits += slots.tokens[place] + 1 if kind == VERIFY else 0 if kind == CHUNK else 1
        rows_s = laws.laws[verify].per_row_s * (members - 1)
        passed_s = one_pass_s(laws, verify, target.prefill, slots, start, members, logits)
        return float(laws.laws[verify].base_s + rows_s + passed_s)
    total_s, fixed_s, most_s = 0.0, 0.0, 0.0
    others, tokens, context, fed, law = 0, 0.0, 0.0, 0.0, target.decode
    for place in range(start, start + members):
        kind = slots.kinds[place]
        if kind in (PREFILL, CHUNK):
            total_s += law_s(laws, target.prefill, slots.fed[place], slots.context[place], 1.0, 0.0)
            most_s = laws.laws[target.prefill].base_s
            fixed_s += most_s
            continue
        others += 1
        tokens, context = max(tokens, slots.fed[place]), max(context, slots.context[place])
        fed += slots.fed[place]
        if slots.fed[place] > 1:
            law = verify
    if others:
        total_s += law_s(laws, law, tokens, context, float(others), fed - tokens)
        fixed_s += laws.laws[law].base_s
        most_s = max(most_s, laws.laws[law].base_s)
    return total_s - (fixed_s - most_s)


@compiled_inline
def target_step_s(laws: Laws, target: Record, slots: Slots) -> float:
    """Return the mean time of the planned step, and note the source of its ratio: as `verifier_durations`."""
    kind = target.step
    if target.members > 1 and (kind == MIXED or laws.laws[target.verify].roofline >= 0):
        target.source = target.pass_ratios
        return pass_s(laws, target, slots)
    law, target.source = target.prefill, target.prefill_ratios
    if kind == VERIFY:
        law, target.source = target.verify, target.verify_ratios
    elif kind == DECODE:
        law, target.source = target.decode, target.decode_ratios
    return timed_s(laws, law, slots, target.start, target.members)


@compiled
def block_step_s(laws: Laws, target: Record, streams: Array, slots: Slots) -> float:
    """Return the mean time of the pass that drafts a block for each row, whose parts are those of `parts_of_block`."""
    start, end, draft, longest, logits = target.start, target.start + target.members, target.draft, 0, 0
    for place in range(start, end):
        row, drafted = streams[slots.members[place]], slots.tokens[place]
        more = 0 if drafted > 0 else 1
        if row.share > row.share_drafts + 1:  # a part of a prompt
            more = max(row.share - drafted - 1, 0)
        slots.fed[place], slots.context[place] = more + drafted, row.committed - more
        longest, logits = max(longest, drafted), logits + drafted
    base_s = laws.laws[draft].base_s + laws.laws[draft].per_token_s * longest
    return float(base_s + one_pass_s(laws, draft, target.draft_prefill, slots, start, end - start, logits))


@compiled_inline
def law_draft_s(laws: Laws, target: Record, streams: Array, slots: Slots) -> float:
    """Return the mean time of a draft on a target's device by laws, whose parts are those of `parts_of_draft`."""
    draft, prefill = target.draft, target.draft_prefill
    prompts_s, rows, tokens, context, fed = 0.0, 0, 0.0, 0.0, 0.0
    for place in range(target.start, target.start + target.members):
        row, drafted = streams[slots.members[place]], slots.tokens[place]
        more = 0 if drafted > 0 else 1
        if row.share > row.share_drafts + 1:  # a part of a prompt
            more = row.share - drafted - 1
        if more > 0:
            prompts_s += law_s(laws, prefill, float(more), float(row.committed - more), 1.0, 0.0)
        if drafted > 0:
            rows += 1
            tokens, context = max(tokens, float(drafted)), max(context, float(row.committed))
            fed += drafted
    return float(prompts_s + (law_s(laws, draft, tokens, context, float(rows), fed - tokens) if rows else 0.0))


@compiled_inline
def draft_step_s(laws: Laws, target: Record, streams: Array, slots: Slots) -> float:
    """Return the mean time of a draft on a target's device, as `drafting_s` of `fleet.times.mixed`."""
    start, end, draft, prefill = target.start, target.start + target.members, target.draft, target.draft_prefill
    if laws.laws[draft].roofline < 0 or laws.laws[prefill].roofline < 0:
        return law_draft_s(laws, target, streams, slots)
    if not laws.rooflines[laws.laws[draft].roofline].in_turn:
        return block_step_s(laws, target, streams, slots)
    passes = 0
    for place in range(start, end):
        row = streams[slots.members[place]]
        slots.fed[place], slots.context[place] = row.share, max(row.committed - row.share, 0)
        passes = max(passes, slots.tokens[place] - 1)
    time_s = laws.laws[draft].base_s + one_pass_s(laws, draft, prefill, slots, start, end - start, end - start)
    for number in range(passes):
        rows = 0
        for place in range(start, end):
            if slots.tokens[place] - 1 > number:
                slots.fed[start + rows] = 1.0
                slots.context[start + rows] = streams[slots.members[place]].committed + number
                rows += 1
        time_s += one_pass_s(laws, draft, prefill, slots, start, rows, rows)
    return float(time_s)


@compiled_inline
def group_step_s(laws: Laws, drafter: Record, slots: Slots) -> float:
    """Return the mean time of the planned step of a drafter, and note the source of its ratio."""
    law, drafter.source = drafter.draft, drafter.draft_ratios
    if drafter.step == PREFILL:
        law, drafter.source = drafter.prefill, drafter.prefill_ratios
    return timed_s(laws, law, slots, drafter.start, drafter.members)


@compiled_inline
def draft_s(laws: Laws, drafter: Record, ratio: float, streams: Array, slots: Slots) -> float:
    """Return the time of a draft after an idle gap, as `draft_durations` of `fleet.times.durations`."""
    time_s = drafter.mean_s * ratio * interpolated(drafter.idle_gap_s, laws.gaps_s, laws.slowdowns)
    for place in range(drafter.start, drafter.start + drafter.members):
        if streams[slots.members[place]].catches_up:
            return float(time_s + laws.catch_up_s)
    return float(time_s)
