"""Mean times of steps whose rows do different things: one pass over parts of prompts, verifications and decoding."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.times.grid import Grid
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import Member, Step, StepKind
from specfleet.fleet.times.step_time import StepTime


class Part(NamedTuple):
    """A row's part of a pass: tokens fed after `context` ones, how many of them get logits, and whether of a prompt."""

    fed: int
    context: int
    logits: int
    of_prompt: bool


def make_part(kind: StepKind, tokens: int, base: int, shape: Shape) -> Part:
    """Make a row's part of a step over `tokens` tokens at committed length `base`, on drafts of that shape.

    d draft tokens are verified by feeding d + 1; a plain decoding step feeds one; the context of a prefill is its
    earlier chunks, and the tokens of a draft are its levels.
    """
    match kind:
        case "prefill":
            return Part(tokens, base, 1, True)
        case "chunk":
            return Part(tokens, base, 0, True)
        case "draft_prefill":
            return Part(tokens, 0, 0, True)
        case "verify":
            nodes = shape.nodes(tokens) + 1
            return Part(nodes, base, nodes, False)
        case "decode":
            return Part(1, base, 1, False)
        case _:
            return Part(tokens, base, 1, False)


def parts_of(step: Step, shape: Shape, tokens: Sequence[int] | None = None) -> list[Part]:
    """Return the parts of a step on drafts of that shape. `tokens`: of its members, if different from the plan."""
    fed = tokens if tokens is not None else [member.tokens for member in step.members]
    pairs = zip(step.members, fed, strict=True)
    return [make_part(step.kind_of(member), number, member.base, shape) for member, number in pairs]


def pass_s(times: VerifierTimes, step: Step, shape: Shape) -> float:
    """Return the mean time in seconds of a step of several rows."""
    parts = parts_of(step, shape)
    verify, prefill = times.verify, times.prefill
    if verify.roofline is not None and prefill.roofline is not None:
        rows_s = verify.per_row_s * (len(parts) - 1)  # base_s holds the first row's
        return verify.base_s + rows_s + one_pass_s(verify.roofline, prefill.roofline, parts)
    # The engine, whose laws these are, feeds all in one pass: one part has the fixed time for all.
    total_s = fixed_s = most_s = 0.0
    for part in parts:
        if part.of_prompt:
            total_s += prefill.mean_s(part.fed, part.context)
            fixed_s, most_s = fixed_s + prefill.base_s, prefill.base_s
    if others := [part for part in parts if not part.of_prompt]:
        law = verify if any(part.logits > 1 for part in others) else times.decode
        total_s += together_s(law, others)
        fixed_s, most_s = fixed_s + law.base_s, max(most_s, law.base_s)
    return total_s - (fixed_s - most_s)


def drafting_s(times: DrafterTimes, step: Step, drafted: Sequence[int]) -> float:
    """Return the mean time in seconds of a draft on a target's device after a step of the target.

    The first pass reads all tokens that the target's step fed, rejected ones and parts of prompts too, as vLLM's does;
    each further pass adds a token to every row that goes on. A block has no further passes.

    - `drafted`: draft tokens of each row, negative for those found in its text. Such a row takes no part, unless the
      drafter runs for all rows: it reads its tokens with the next draft of it, but a prompt at once.
    """
    if times.dropped is not UNSET:
        pairs = zip(step.members, drafted, strict=True)
        drafted = [min(times.dropped, member.tokens) if tokens < 0 else tokens for member, tokens in pairs]
    draft, prefill, members = times.draft, times.prefill, taking_part(step, drafted)
    if not members:
        return 0.0
    if draft.roofline is None or prefill.roofline is None:
        read, rows = parts_of_draft(step, drafted)
        return one_by_one_s(prefill, read) + (together_s(draft, rows) if rows else 0.0)
    if not draft.roofline.in_turn:
        base_s = draft.base_s + draft.per_token_s * max(tokens for _, tokens in members)
        return base_s + one_pass_s(draft.roofline, prefill.roofline, parts_of_block(step, drafted))
    first = [Part(member.behind, max(member.base - member.behind, 0), 1, True) for member, _ in members]
    time_s = draft.base_s + one_pass_s(draft.roofline, prefill.roofline, first)
    later = [(member.base, tokens - 1) for member, tokens in members if tokens > 1]
    passes = max((left for _, left in later), default=0)
    for number in range(passes):
        rows = [Part(1, base + number, 1, False) for base, left in later if left > number]
        time_s += one_pass_s(draft.roofline, prefill.roofline, rows)
    return time_s


def taking_part(step: Step, drafted: Sequence[int]) -> list[tuple[Member, int]]:
    """Return the rows that take part in a drafter's step, and the tokens that it drafts for each."""
    pairs = zip(step.members, drafted, strict=True)
    return [(member, max(tokens, 0)) for member, tokens in pairs if tokens >= 0 or member.of_prompt]


def parts_of_block(step: Step, drafted: Sequence[int]) -> list[Part]:
    """Return the parts of a pass that drafts a block for each row: its tokens, and what else it reads before them."""
    parts = []
    for member, tokens in taking_part(step, drafted):
        more = max(_unread(member, tokens), 0)
        parts.append(Part(more + tokens, member.base - more, tokens, False))
    return parts


def _unread(member: Member, tokens: int) -> int:
    """Return the tokens that a drafter reads beside its draft: of a prompt, or the newest where it drafts nothing."""
    return member.behind - tokens - 1 if member.of_prompt else int(not tokens)


def parts_of_draft(step: Step, drafted: Sequence[int]) -> tuple[list[Part], list[Part]]:
    """Return what a drafter on a target's device reads before its draft, row by row, and what it drafts.

    It knows its last draft, so it reads parts of prompts, and the newest token of a row that drafts nothing.
    """
    read, rows = [], []
    for member, tokens in taking_part(step, drafted):
        if tokens:
            rows.append(Part(tokens, member.base, 1, False))
        if (more := _unread(member, tokens)) > 0:
            read.append(Part(more, member.base - more, 0, True))
    return read, rows


def one_by_one_s(time: StepTime, parts: Sequence[Part]) -> float:
    """Return the sum of the mean times of each row alone, added in their order: `sum` rounds by Python's version."""
    time_s = 0.0
    for part in parts:
        time_s += time.mean_s(part.fed, part.context)
    return time_s


def together_s(time: StepTime, parts: Sequence[Part]) -> float:
    """Return the mean time of rows of one kind: tokens and context are those of the longest row."""
    return time.mean_s(*extent_of(parts))


def extent_of(parts: Sequence[Part], padded: bool = False, ballast: int = 0) -> tuple[int, int, int, int]:
    """Return the inputs of the time of rows of one kind: tokens and context of the longest, rows, others' tokens.

    - `padded`: rows are padded to the longest; prompts, which are prefilled one by one, never are.
    - `ballast`: further rows as long as the longest.
    """
    fed, context, rows = max(part.fed for part in parts), max(part.context for part in parts), len(parts) + ballast
    if padded and not parts[0].of_prompt:
        return fed, context, rows, fed * (rows - 1)
    return fed, context, rows, sum(part.fed for part in parts) - fed + fed * ballast


def one_pass_s(every_logit: Roofline, last_logit: Roofline, parts: Sequence[Part]) -> float:
    """Return the time of one pass by rooflines: with the logits of all tokens, and with those of one.

    Products depend on the tokens of all rows, and attention on the tokens and the context of each.
    """
    fed, logits = sum(part.fed for part in parts), sum(part.logits for part in parts)
    device_s = last_logit.products_s(fed)
    if logits:  # what reads a prompt may be less than a pass, as of DFlash
        device_s += every_logit.products_s(logits) - last_logit.products_s(logits)
    sharpness = every_logit.sharpness
    for kind in every_logit.attention:
        read_s = compute_s = 0.0
        for part in parts:
            reading_s, computing_s = kind.work_s(part.fed, part.fed, 1, part.context)
            read_s += reading_s
            compute_s += computing_s
        device_s += (read_s**sharpness + compute_s**sharpness) ** (1 / sharpness)
    if every_logit.measured and last_logit.measured:
        device_s += measured_s(every_logit.measured, last_logit.measured, parts)
    return max(device_s, every_logit.host_s)


def measured_s(of_rows: Sequence[Grid], of_chunks: Sequence[Grid], parts: Sequence[Part]) -> float:
    """Return the attention of a step: the largest chunk beside rows at their mean context, other chunks alone."""
    chunks = sorted((part.fed, part.context) for part in parts if part.of_prompt)
    contexts = [part.context for part in parts if not part.of_prompt]
    times_s = []
    if contexts:
        rows = len(contexts), sum(contexts) / len(contexts)
        times_s.append(of_rows[1].at(*chunks.pop(), *rows) if chunks else of_rows[0].at(*rows))
    return math.fsum(times_s + [of_chunks[0].at(*chunk) for chunk in chunks])
