"""Who reads each key of a scenario: one table, from which every refusal of a key without effect follows.

A key counts as set if its value differs from the default. A key that the form of a scenario leaves unread, such as
plain decoding, is refused where it is set (`conflicts.py`). The compiled loop (`sim/fast/choice.py`), the equations
(`sim/predict.py`), the engine's recorded texts (`engine/launch/runnable.py`) and engines of others
(`engine/outside/job.py`) refuse a fleet with a key that they do not read. A small condition beside them says which of
its values they do read.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec

from specfleet.fleet.acceptance.models import needs_fit
from specfleet.fleet.policies.group import One
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.scenario.arrivals import Trace
from specfleet.fleet.scenario.lengths import TEXTS
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import default_of, fields_of


class Form(NamedTuple):
    """A form of scenario that leaves keys unread: its `reason` in errors, formatted with the scenario."""

    reason: str
    holds: Callable[[Scenario], bool]


_BESIDE = "drafters.place = 'target' drafts within the target's steps"
_OTHER_SHAPE = "drafters.shape.kind = {0.drafters.shape.kind!r} has other keys"
FORMS: dict[str, Form] = {
    "plain": Form("drafters.count = 0 decodes without a drafter", lambda of: not of.drafters.count),
    "beside": Form(_BESIDE, lambda of: of.drafters.place == "target"),
    "apart": Form("drafters.place = 'own' drafts elsewhere", lambda of: of.drafters.place == "own"),
    "instant": Form(
        "without verifiers.prefill.link.bandwidth_bytes_per_s a KV cache leaves in no time",
        lambda of: bool(of.verifiers.prefill and not of.verifiers.prefill.link.bandwidth_bytes_per_s),
    ),
    "split": Form("verifiers.prefill has devices of its own, and no faults", lambda of: bool(of.verifiers.prefill)),
    "many-beside": Form(_BESIDE, lambda of: of.drafters.place == "target" and of.drafters.count > 0),
    "aligned": Form(
        "verifiers.aligned keeps all rows of a batch in one rectangle", lambda of: of.verifiers.aligned is not None
    ),
    "ahead": Form(
        "drafters.overlap = 'ahead' drafts token by token", lambda of: isinstance(of.drafters.overlap, Ahead)
    ),
    "allocate": Form(
        "verifiers.allocate has the speculation lengths",
        lambda of: of.verifiers.allocate is not None and of.drafters.count > 0,
    ),
    "chain": Form(_OTHER_SHAPE, lambda of: of.drafters.shape.kind == "chain"),
    "tree": Form(_OTHER_SHAPE, lambda of: of.drafters.shape.kind == "tree"),
    "dynamic": Form(_OTHER_SHAPE, lambda of: of.drafters.shape.kind == "dynamic"),
    "lookup": Form("drafters.kind = {0.drafters.kind!r} drafts chains, and has no cache", lambda of: of.drafters.finds),
    "block": Form("drafters.kind = 'block' drafts chains in one pass", lambda of: of.drafters.kind == "block"),
    "first": Form("drafters.first finds chains", lambda of: bool(of.drafters.first)),
    "arrivals": Form(
        "workload.arrivals makes every request a stream of its own", lambda of: of.workload.arrivals is not None
    ),
    "closed": Form("without workload.arrivals the loop is closed", lambda of: of.workload.arrivals is None),
    "trace": Form("the trace of workload.arrivals has the lengths", lambda of: isinstance(of.workload.arrivals, Trace)),
    "lengths": Form(
        "workload.lengths = {0.workload.lengths!r} has the lengths",
        lambda of: of.workload.lengths != "" and not isinstance(of.workload.arrivals, Trace),
    ),
    "drawn": Form("workload.lengths names no file", lambda of: of.workload.lengths in ("", *TEXTS)),
    "own-streams": Form(
        "every request is a stream of its own, in a domain of its own",
        lambda of: of.workload.arrivals is not None or of.workload.streams >= of.workload.requests,
    ),
    "greedy": Form("workload.temperature = 0 decodes greedily", lambda of: not of.workload.temperature),
    "batch": Form(
        "drafters.group = 'batch' takes all that wait, oldest first", lambda of: not isinstance(of.drafters.group, One)
    ),
    "unordered": Form(
        "drafters.order {0.drafters.order.__struct_config__.tag!r} looks at no priority",
        lambda of: of.drafters.order.__struct_config__.tag in ("fifo", "weighted", "deadline"),
    ),
    "patient": Form(
        "verifiers.patience_s = 0 gives no drafter up",
        lambda of: of.drafters.count > 0 and not of.verifiers.patience_s,
    ),
}

# Forms, and "loop" (compiled), "equations" (of a star), "engine", "recorded" (the engine's recorded texts).
_NOT_READ_BY = {  # a drafter's description may stay without one: `--set drafters.count=0` then gives the baseline
    "name seed profile precision version slo cost measure.warm_up_share": "",
    "measure.ends": "closed",
    "faults": "plain split loop equations",
    "verifiers.aligned": "loop equations",
    "drafters.place": "equations recorded",
    "drafters.count": "many-beside equations",
    "drafters.overlap": "plain beside block loop equations recorded",
    "drafters.group": "plain beside equations",
    "drafters.admit drafters.warm_up": "plain beside loop equations",
    "drafters.order": "plain beside batch loop",
    "drafters.order.limits_per_s": "ahead equations",
    "drafters.route drafters.lease_s": "plain beside loop",
    "drafters.prefix_cache": "plain beside lookup loop equations engine",
    "drafters.tiers": "plain beside",
    "drafters.device": "beside equations",
    "drafters.depth": "ahead allocate",
    "drafters.shape": "ahead lookup block first loop",
    "drafters.shape.branching": "chain dynamic",
    "drafters.shape.width drafters.shape.most": "chain tree",
    "drafters.kind drafters.model drafters.profile": "",
    "drafters.first": "apart aligned lookup loop",
    "verifiers.device": "aligned split equations",
    "verifiers.late": "plain beside aligned ahead equations recorded",
    "verifiers.allocate": "plain ahead loop equations",
    "verifiers.patience_s": "plain beside loop",
    "verifiers.rejoin_s": "plain beside patient loop",
    "verifiers.priorities": "unordered",
    "verifiers.max_num_batched_tokens verifiers.prefill_first verifiers.kv_tokens": "aligned",
    "verifiers.kv_block_size verifiers.gpu_memory_utilization": "aligned",
    "verifiers.prefix_cache": "aligned equations",
    "verifiers.prefill": "aligned loop equations engine recorded",
    "verifiers.prefill.layers": "instant",
    "verifiers.prefill.draft_cache": "plain apart lookup",
    "verifiers.prefill.first_round_drafts": "plain apart allocate lookup first",
    "verifiers.count verifiers.kind verifiers.model verifiers.profile verifiers.verify verifiers.rule": "",
    "verifiers.max_num_seqs verifiers.tiers": "",
    "devices": "loop",
    "link": "beside",
    "workload.arrivals": "equations recorded",
    "workload.requests": "equations",
    "workload.streams": "arrivals equations",
    "workload.prompt_tokens workload.new_tokens": "trace lengths recorded",
    "workload.lengths": "trace recorded",
    "workload.id_tokens": "trace drawn engine",
    "workload.shared": "trace",
    "workload.conversations": "trace equations recorded",
    "workload.top_k workload.top_p": "greedy",
    "workload.seed workload.prompts workload.temperature": "",
    "acceptance": "loop equations",
    "acceptance.switch": "own-streams",
}
UNREAD: dict[str, frozenset[str]] = {
    key: frozenset(readers.split()) for keys, readers in _NOT_READ_BY.items() for key in keys.split()
}
"""Each key, and the forms and others that do not read it."""

_OVER_PROFILE = {  # keys of a scenario, and what they state in place of its profile
    "acceptance": "acceptance", "link": "link", "verifiers.verify": "verify decode verify_prefill",
    "verifiers.profile": "verify decode verify_prefill realign kv",
    "drafters.profile": "draft one_pass draft_prefill catch_up_s idle",
}  # fmt: skip


def overruled(scenario: Scenario, stated: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each stated key of the profile without effect, and the scenario's key that wins over it."""
    for (profile, _, part), key in ((key.partition("."), key) for key in map(str, stated)):
        for winner, parts in _OVER_PROFILE.items() if profile == "profile" else ():
            fits = winner == "acceptance" and needs_fit(scenario.acceptance)
            if part.partition(".")[0] in parts.split() and is_set(scenario, winner) and not fits:
                yield key, winner


def unread(reader: str) -> Iterator[str]:
    """Yield the keys that a reader does not read."""
    return (key for key, readers in UNREAD.items() if reader in readers)


def value_of(of: Any, key: str) -> Any:
    """Return the value of a key in a scenario or a resolved fleet; None if it has the default, or no such key."""
    *tables, name = key.split(".")
    for table in tables:
        of = getattr(of, table, None)
    if name in ("patience_s", "rejoin_s"):
        of = getattr(of, "patience", of)  # of a resolved fleet
    defaults = _defaults(of.__class__)
    return None if name not in defaults or getattr(of, name) == defaults[name] else getattr(of, name)


def is_set(of: Any, key: str) -> bool:
    """Return whether the value of a key differs from its default."""
    return value_of(of, key) is not None


@cache
def _defaults(table: type) -> dict[str, Any]:
    return {field.name: default_of(field) for field in fields_of(table)} if issubclass(table, msgspec.Struct) else {}
