"""Keys that have no effect beside others of the same scenario: refused in one line each, never silently ignored.

A key counts as set if its value differs from the default. Beside a `[batch]`, and without a drafter, all keys of a
side are refused but for those listed here, so that a new key is refused until it is listed.
"""

from collections.abc import Container, Iterator
from itertools import pairwise

from fleet.policies.group import One
from fleet.policies.overlap import Ahead
from fleet.policies.route import Affinity
from fleet.policies.shapes import Shape
from fleet.scenario.arrivals import Trace
from fleet.scenario.scenario import Scenario, Workload

Case = tuple[str, bool, Container[str]]
"""A reason, whether it applies, and the keys that are then unused."""

DEFAULT = Scenario()
OF_A_BATCH = {"drafters": {"depth", "shape", "kind", "model"}, "verifiers": {"model", "rule"}}
# A drafter's description may stay without one: `--set drafters.count=0` then gives the baseline.
OF_A_DRAFTER = {"count", "depth", "shape", "kind", "model", "profile", "device"}
OF_A_SHAPE = {"chain": set[str](), "tree": {"branching"}, "dynamic": {"width", "most"}}


def unused_keys(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each unused key: the reason, and what to do."""
    changed_keys = _given(scenario)
    for reason, holds, unused in _cases(scenario, changed_keys):
        if holds:
            yield from (f"{reason}; leave {key} out" for key in changed_keys if key in unused)
    for side in ("drafters", "verifiers"):
        for before, tier in pairwise(getattr(scenario, side).tiers):
            if tier.first <= before.first:
                yield f"{side}.tiers: first = {tier.first} comes after first = {before.first}; allowed: first rises"
    for name in scenario.devices if scenario.batch is None else ():
        if name not in (scenario.drafters.device, scenario.verifiers.device):
            yield f"devices.{name}: no station is on it; drafters.device and verifiers.device name it"


def _given(scenario: Scenario) -> list[str]:
    """Return the dotted names of keys that differ from their defaults, in the tables that can have unused keys."""
    names = []
    for table in ("drafters", "verifiers", "workload"):
        keys = getattr(scenario, table).__struct_fields__
        given, default = getattr(scenario, table), getattr(DEFAULT, table)
        names += [f"{table}.{key}" for key in keys if getattr(given, key) != getattr(default, key)]
    shape, chain = scenario.drafters.shape, Shape()
    keys = ("branching", "width", "most")
    names += [f"drafters.shape.{key}" for key in keys if getattr(shape, key) != getattr(chain, key)]
    return names + [name for name in ("devices", "link", "memory", "faults") if getattr(scenario, name)]


def _cases(scenario: Scenario, changed_keys: list[str]) -> Iterator[Case]:
    drafters, verifiers, workload = scenario.drafters, scenario.verifiers, scenario.workload
    batch, shape = scenario.batch is not None, drafters.shape.kind
    used = {f"{side}.{name}" for side, names in OF_A_BATCH.items() for name in names}
    yield "[batch] is one drafter and one target of its own", batch, {
        key for key in changed_keys if not key.startswith(("workload.", "drafters.shape.")) and key not in used
    }  # fmt: skip
    used = {f"drafters.{name}" for name in OF_A_DRAFTER}
    yield "drafters.count = 0 decodes without a drafter", not drafters.count, {
        "verifiers.allocate", "verifiers.patience_s", "verifiers.rejoin_s", "faults",
        *(key for key in changed_keys if key.startswith("drafters.") and not key.startswith("drafters.shape.")),
    } - used  # fmt: skip
    yield "drafters.overlap = 'ahead' drafts token by token", isinstance(drafters.overlap, Ahead), {
        "drafters.depth", "drafters.shape", "drafters.allocate", "drafters.limits_per_s", "verifiers.allocate",
    }  # fmt: skip
    yield "verifiers.allocate grants the lengths of drafts", verifiers.allocate is not None, {"drafters.allocate"}
    unused = {f"drafters.shape.{name}" for names in OF_A_SHAPE.values() for name in names - OF_A_SHAPE[shape]}
    yield f"drafters.shape.kind = {shape!r} has other keys", True, unused
    yield "drafters.kind = 'lookup' drafts chains", drafters.kind == "lookup", {"drafters.shape"}
    yield from _of_workload(workload)
    is_batched = not isinstance(drafters.group, One)
    yield "drafters.group = 'batch' takes all that wait, oldest first", is_batched, {"drafters.order"}
    yield "drafters.group = 'batch' limits no target's rounds", is_batched, {"drafters.limits_per_s"}
    moves = {"drafters.move", "drafters.view_delay_s"}
    yield "drafters.route = 'affinity' moves no session", isinstance(drafters.route, Affinity), moves
    is_patient = verifiers.patience_s > 0 or not drafters.count
    yield "verifiers.patience_s = 0 gives no drafter up", not is_patient, {"verifiers.rejoin_s"}


def _of_workload(workload: Workload) -> Iterator[Case]:
    streams = {"workload.streams"}
    yield "workload.arrivals makes every request a stream of its own", workload.arrivals is not None, streams
    prompts, answers, lengths = "workload.prompt_tokens", "workload.new_tokens", "workload.lengths"
    source = f"workload.lengths = {workload.lengths!r}"
    if workload.conversations:
        yield "workload.conversations has the lengths", True, {prompts, lengths}
    elif isinstance(workload.arrivals, Trace):
        yield "the trace of workload.arrivals has the lengths", True, {prompts, answers, lengths}
    elif workload.lengths:
        yield f"{source} has the lengths", True, {prompts, answers}
    sampling = {"workload.top_k", "workload.top_p"}
    yield "workload.temperature = 0 decodes greedily", not workload.temperature, sampling
