"""Random fleets that the compiled loop supports: plain stars, serving targets, and these with drafters elsewhere."""

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of

seconds = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(1e-9, 3.0)  # round values: events coincide
small = st.sampled_from([0.0, 0.125, 1e-3]) | st.floats(1e-9, 0.1)
quantiles = {"spread": "quantiles", "levels": [0.0, 0.3, 1.0], "ratios_at": [0.5, 0.9, 1.8]}
spreads = st.sampled_from(["constant", "exponential", quantiles])
between = st.builds(lambda low, more: {"low": low, "high": low + more}, st.integers(1, 20), st.integers(0, 30))
lengths = st.integers(1, 40) | between | st.just({"low": 1, "high": 90, "mean": 20, "cv": 1.2})
ATTENTION = {"read_s": 1e-3, "pair_s": 1e-4}
ROOFLINE = {"tokens": [1, 8, 64], "pass_s": [0.1, 0.15, 0.9], "attention": [ATTENTION], "host_s": 0.05}
SLOWER_DRAFTERS = [{"first": 2, "step": {"base_s": 0.75}}]
SLOWER_TARGETS = [{"first": 2, "step": {"base_s": 1.5, "per_row_s": 0.25, "spread": "exponential"}}]
FARTHER_TARGETS = [{"first": 3, "step": {"base_s": 1.5, "spread": "exponential"}, "link": {"latency_s": 0.5}}]
OTHER = {
    "name": "other",
    "draft": {"base_s": 9.0},
    "verify": {"base_s": 0.75, "spread": "exponential"},
    "decode": {"base_s": 0.5, "per_row_s": 0.125},
    "verify_prefill": {"base_s": 0.25, "per_token_s": 0.01},
    "overhead": {
        "own": {"target": {"woken": {"mean_s": 0.125}, "queued": {"mean_s": 0.0625, "spread": "exponential"}}}
    },
}
OTHER_TARGETS = [{"first": 2, "profile": OTHER}, FARTHER_TARGETS[0]]
SMALLER_TARGETS = [{"first": 2, "profile": OTHER | {"kv": {"free_bytes": 160.0, "token_bytes": 1.0}}}]


def fitting(side: dict[str, Any]) -> dict[str, Any]:
    """Return a side without the tiers beyond its stations, and without blocks of a cache that has no limit."""
    tiers = [tier for tier in side.get("tiers", []) if tier["first"] <= side["count"]]
    blocks = {"kv_block_size": side.get("kv_block_size", 16)} if side.get("kv_tokens") else {}
    return {key: value for key, value in side.items() if key != "kv_block_size"} | blocks | {"tiers": tiers}


PARTS = dict.fromkeys(("per_token_s", "per_context_token_s", "per_token_context_s"), small) | {"spread": spreads}
steps = st.fixed_dictionaries(
    {"base_s": seconds}, optional=PARTS | {"roofline": st.sampled_from([ROOFLINE, ROOFLINE | {"in_turn": True}])}
)
links = st.fixed_dictionaries(
    {"latency_s": seconds}, optional={"bandwidth_bytes_per_s": st.floats(10, 1e6), "spread": spreads}
)
idle = st.fixed_dictionaries({"gaps_s": st.just([0.0, 0.5, 2.0]), "slowdowns": st.just([1.0, 1.0, 1.7])})
delays = st.fixed_dictionaries({"mean_s": small | seconds}, optional={"spread": spreads})
powers = st.just({"idle_w": 10.0, "draft_w": 110.0, "verify_w": 210.0})
overheads = st.fixed_dictionaries({}, optional={"queued": delays, "woken": delays, "after": delays})
profiles = st.fixed_dictionaries(
    {"name": st.just("p"), "draft": steps, "verify": steps},
    optional=dict.fromkeys(("draft_prefill", "verify_prefill", "decode"), steps)
    | {
        "link": links,
        "overhead": st.fixed_dictionaries({"own": st.fixed_dictionaries({"drafter": overheads, "target": overheads})}),
        "catch_up_s": small,
        "idle": idle,
        "power": powers,
        "vocabulary": st.just(1000),
        "hidden": st.just(64),
        "positions": st.integers(90, 120),
    },
)
acceptance = (
    st.builds(lambda beta: {"model": "geometric", "beta": beta}, st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
    | st.builds(
        lambda a, b: {"model": "beta-geometric", "a": a, "b": b}, st.floats(0.5, 9), st.floats(0.5, 9)
    )
    | st.just({"model": "per-position", "survival": [0.9, 0.8, 0.6, 0.5, 0.4, 0.4, 0.2, 0.1]})
    | st.just({"model": "recorded", "depth": 8, "sessions": [[0, 8, 3], [5], [1, 1, 2, 7, 8, 0]]})
)  # fmt: skip
workloads = st.fixed_dictionaries(
    {"requests": st.integers(2, 25), "prompt_tokens": lengths, "new_tokens": lengths},
    optional={"temperature": st.just(0.7)},
)
drafters = st.fixed_dictionaries(
    {"count": st.integers(0, 3), "depth": st.integers(1, 8)},
    optional={"kind": st.sampled_from(["model", "eagle", "block", "lookup"]), "tiers": st.just(SLOWER_DRAFTERS)},
).map(fitting)
verifiers = st.fixed_dictionaries(
    {"count": st.integers(1, 9)}, optional={"tiers": st.sampled_from([FARTHER_TARGETS, OTHER_TARGETS])}
).map(fitting)


def within_positions(tables: dict[str, Any]) -> Scenario:
    """Return the scenario; another one is drawn where a text is longer than the positions of the models."""
    scenario = make_scenario(tables)
    try:
        streams_of(resolve(scenario))
    except InputError:
        reject()
    return scenario


@st.composite
def plain_stars(draw: st.DrawFn) -> Scenario:
    """Any star that the loop supports."""
    workload, made = draw(workloads), draw(drafters)
    of_targets = draw(verifiers)
    most = min(of_targets["count"], workload["requests"] - 1)  # one at a target, in a closed loop
    workload["streams"] = draw(st.integers(1, most))
    if made["count"] == 0:
        made = {"count": 0}
    tables = {
        "name": "plain", "seed": draw(st.integers(0, 5)), "profile": draw(profiles), "acceptance": draw(acceptance),
        "drafters": made, "verifiers": of_targets, "workload": workload,
    }  # fmt: skip
    if draw(st.booleans()):
        tables["link"] = draw(links)
        if made["count"] and draw(st.booleans()):  # each side is another machine
            tables["verifiers"] = tables["verifiers"] | {"profile": tables.pop("profile")}
            tables["drafters"] = made | {"profile": draw(profiles)}
    return within_positions(tables)


WINDOWS = [ATTENTION, ATTENTION | {"window": 6}]
LONG_PASSES = ROOFLINE | {"pass_s": [0.02, 0.03, 0.2], "attention": WINDOWS, "sharpness": 2.0}
BY_ROWS = ("per_row_s", "per_row_token_s", "per_row_context_s", "several_s", "several_per_token_s")
rooflines = st.sampled_from([ROOFLINE, LONG_PASSES, LONG_PASSES | {"in_turn": True}])
serving_steps = st.fixed_dictionaries(
    {"base_s": seconds}, optional=PARTS | dict.fromkeys(BY_ROWS, small) | {"roofline": rooflines}
)
serving_profiles = st.fixed_dictionaries(
    {"name": st.just("p"), "link": st.just({})}
    | dict.fromkeys(("draft", "verify", "draft_prefill", "verify_prefill", "decode"), serving_steps),
    optional={
        "overhead": st.builds(lambda target: {"own": {"target": target}}, overheads),
        "power": powers,
        "positions": st.integers(100, 104),
    },
)
serving_targets = st.fixed_dictionaries(
    {"count": st.integers(1, 3), "kv_tokens": st.sampled_from([0, 128, 160])},
    optional={
        "kv_block_size": st.sampled_from([1, 7, 32]),
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(6, 60),
        "prefill_first": st.booleans(),
        "tiers": st.just(SLOWER_TARGETS),
    },
).map(fitting)
loads = st.fixed_dictionaries({"streams": st.integers(1, 12)}) | st.builds(
    lambda process, per_s: {"arrivals": process | {"per_s": per_s}},
    st.sampled_from([{"process": "poisson"}, {"process": "gamma", "burstiness": 0.5}]),
    st.sampled_from([0.1, 1.0, 10.0]),
)


@st.composite
def loaded(draw: st.DrawFn, texts: st.SearchStrategy[Any]) -> dict[str, Any]:
    """A workload of such texts under one of the loads."""
    sizes = {"requests": draw(st.integers(1, 30)), "prompt_tokens": draw(texts), "new_tokens": draw(texts)}
    return sizes | draw(loads)


@st.composite
def serving_fleets(draw: st.DrawFn) -> Scenario:
    """Any fleet of targets without drafters elsewhere that the loop supports."""
    kind, texts = draw(st.sampled_from(["", "model", "eagle", "block", "lookup"])), st.integers(1, 35) | between
    tables = {
        "name": "serving", "seed": draw(st.integers(0, 5)), "profile": draw(serving_profiles),
        "acceptance": draw(acceptance), "verifiers": draw(serving_targets),
        "drafters": {"count": 0},
        "workload": draw(loaded(texts)),
    }  # fmt: skip
    if kind:
        tables["drafters"] = {"place": "target", "kind": kind, "depth": draw(st.integers(1, 8))}
    elif draw(st.booleans()):
        tables["verifiers"] |= {"tiers": SMALLER_TARGETS}
    return make_scenario(tables)


batches = st.just({"policy": "one"}) | st.builds(lambda most: {"policy": "batch", "most": most}, st.integers(1, 5))
grouped_drafters = st.fixed_dictionaries(
    {"count": st.integers(1, 3), "depth": st.integers(1, 8), "group": batches},
    optional={"kind": st.sampled_from(["model", "eagle", "block", "lookup"]), "tiers": st.just(SLOWER_DRAFTERS)},
).map(fitting)
asking_targets = st.fixed_dictionaries(
    {"count": st.integers(1, 3), "late": st.sampled_from(["skip", "decode", "wait"])},
    optional={
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(1, 60),
        "prefill_first": st.booleans(),
        "tiers": st.sampled_from([SLOWER_TARGETS, FARTHER_TARGETS, OTHER_TARGETS]),
    },
).map(fitting)
two_sided_profiles = st.builds(
    lambda profile, serving: profile | serving,
    profiles,
    st.fixed_dictionaries({"draft": serving_steps, "verify": serving_steps, "decode": serving_steps}),
)


@st.composite
def fleets_with_drafters(draw: st.DrawFn) -> Scenario:
    """Any fleet of targets with drafters elsewhere that the loop supports."""
    texts = st.integers(1, 35) | between
    tables = {
        "name": "elsewhere", "seed": draw(st.integers(0, 5)), "profile": draw(two_sided_profiles),
        "acceptance": draw(acceptance), "drafters": draw(grouped_drafters), "verifiers": draw(asking_targets),
        "workload": draw(loaded(texts)),
    }  # fmt: skip
    if draw(st.booleans()):
        tables["link"] = draw(links)
    size = draw(st.sampled_from([0, 0, 1, 4, 7, 16]))
    return draw(limited(tables, size)) if size else within_positions(tables)


@st.composite
def limited(draw: st.DrawFn, tables: dict[str, Any], size: int) -> Scenario:
    """The scenario with a KV cache of blocks of a size, perhaps so small that rows are preempted."""
    fleet = resolve(within_positions(tables))
    longest = fleet.lengths.longest_text + 2 * fleet.room.longest_draft
    blocks = -(-longest // size) + draw(st.sampled_from([0, 1, 5, 30]))
    kv = {"kv_tokens": blocks * size, "kv_block_size": size}
    return within_positions(tables | {"verifiers": tables["verifiers"] | kv})


BEGINNINGS = st.fixed_dictionaries(
    {"tokens": st.integers(1, 40), "groups": st.integers(1, 4)}, optional={"zipf": st.just(1.0)}
)
TALKS = st.fixed_dictionaries(
    {"turns": st.integers(1, 4) | st.just({"low": 1, "high": 3})}, optional={"think_s": st.sampled_from([0.25, 4.0])}
)
ID_TOKENS, HASHES = 28, st.lists(st.integers(0, 2), min_size=1, max_size=3)  # ids that also stand at other places


@cache
def folder() -> TemporaryDirectory[str]:
    """The files of drawn traces, until the tests end."""
    return TemporaryDirectory()


@st.composite
def traces(draw: st.DrawFn) -> dict[str, Any]:
    """A workload of a trace with hash_ids, in a file."""
    rows, time_ms = [], 0
    for _ in range(draw(st.integers(1, 25))):
        ids, time_ms = draw(HASHES), time_ms + draw(st.sampled_from([0, 1, 700]))
        prompt, answer = ID_TOKENS * len(ids) - draw(st.integers(0, 9)), draw(st.integers(1, 35))
        row = {"timestamp": time_ms, "input_length": prompt, "output_length": answer, "hash_ids": ids}
        rows.append(json.dumps(row))
    text = "\n".join(rows)
    file = Path(folder().name) / f"{sha256(text.encode()).hexdigest()}.jsonl"
    file.write_text(text)
    return {"requests": len(rows), "arrivals": {"process": "trace", "file": str(file), "id_tokens": ID_TOKENS}}


@st.composite
def sharing_fleets(draw: st.DrawFn) -> Scenario:
    """Any fleet of targets whose texts share beginnings, with a cache or without, perhaps a small one."""
    kind, cached = draw(st.sampled_from(["", "model", "eagle", "lookup", "elsewhere"])), draw(st.booleans())
    texts, size = st.integers(1, 35) | between, draw(st.sampled_from([1, 4, 7, 28]))
    drawn = draw(loaded(texts))
    parts = st.fixed_dictionaries({}, optional={"shared": BEGINNINGS, "conversations": TALKS}).map(drawn.__or__)
    tables = {
        "name": "sharing", "seed": draw(st.integers(0, 5)), "acceptance": draw(acceptance),
        "profile": draw(two_sided_profiles if kind == "elsewhere" else serving_profiles),
        "drafters": {"count": 0},
        "workload": draw((traces() if cached else st.nothing()) | parts),
    }  # fmt: skip
    targets = draw(asking_targets if kind == "elsewhere" else serving_targets)
    targets = {key: value for key, value in targets.items() if key not in ("kv_tokens", "kv_block_size")}
    if cached:
        targets |= {"prefix_cache": True, "kv_block_size": size}
    if kind == "elsewhere":
        tables["drafters"] = draw(grouped_drafters)
    elif kind:
        tables["drafters"] = {"place": "target", "kind": kind, "depth": draw(st.integers(1, 8))}
    tables["verifiers"] = targets
    is_limited = draw(st.booleans()) and not (cached and kind == "elsewhere")
    return draw(limited(tables, size)) if is_limited else within_positions(tables)
