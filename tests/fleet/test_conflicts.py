"""Scenarios with conflicting keys are refused in one line that names the keys."""

from typing import Any

import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure, measure_targets
from specfleet.fleet.scenario.readers import FORMS, UNREAD
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

PROFILE = {"name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}, "decode": {"base_s": 3.0}}
BESIDE = {"place": "target"}
GOODPUT = {"policy": "goodput", "most": 2}
ADAPTIVE = {"allocate": {"policy": "adaptive", "depth": 3, "by": "entropy"}}
BLOCK: dict[str, Any] = {"kind": "block"}
APART: dict[str, Any] = {"prefill": {}}
REALIGN = {"aligned": {"policy": "realign"}}
LINK = {"link": {"latency_s": 0.1}}
KILL = {"what": "kill", "node": "drafter"}
LENGTHS = {"lengths": "lengths.csv"}
TRACE = {"process": "trace", "file": "t.csv"}
POISSON = {"process": "poisson", "per_s": 1.0}
SWITCH = {"acceptance": {"model": "ratios", "clients": [[0.5, 0.9]], "switch": 0.1}}
FEW = {"rows": [1], "draft_s": [[0.0, 1.0]], "verify_s": [[1.0, 1.0]]}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"drafters": BESIDE | {"count": 2}}, "drafters.place = 'target' .* leave drafters.count out"),
        ({"drafters": BESIDE | {"overlap": "ahead"}}, "leave drafters.overlap out"),
        ({"verifiers": REALIGN}, "verifiers.aligned needs drafters.place = 'target'"),
        ({"drafters": BESIDE, "verifiers": {"late": "wait"}}, "within the target's steps; leave verifiers.late out"),
        (
            {"drafters": BESIDE, "verifiers": REALIGN | {"prefill_first": True}},
            "verifiers.aligned keeps all rows .* leave verifiers.prefill_first out",
        ),
        (
            {"drafters": BESIDE, "verifiers": REALIGN | {"kv_tokens": 999}},
            "verifiers.aligned keeps all rows .* leave verifiers.kv_tokens out",
        ),
        (
            {"verifiers": {"kv_tokens": 999, "gpu_memory_utilization": 0.5}},
            "verifiers.kv_tokens = 999: gpu_memory_utilization gives it, too; leave one out",
        ),
        (
            {"drafters": BESIDE, "verifiers": {"max_num_seqs": 4, "aligned": {"policy": "same-length", "window": 2}}},
            "verifiers.aligned.window = 2 must hold at least verifiers.max_num_seqs = 4 rows",
        ),
        (
            {"drafters": {"overlap": "ahead", "order": {"policy": "fifo", "limits_per_s": [1.0]}}},
            "leave drafters.order.limits_per_s out",
        ),
        ({"drafters": {"order": {"policy": "fifo", "limits_per_s": [0.0]}}}, "limits_per_s limits no target"),
        (
            {"drafters": {"overlap": "ahead"}, "verifiers": {"allocate": {"policy": "fixed", "depth": 2}}},
            "leave verifiers.allocate out",
        ),
        ({"drafters": {"group": "barrier"}}, "allowed: one, batch"),
        ({"verifiers": {"allocate": "adaedl"}}, "'adaedl' needs drafters.place = 'target'"),
        ({"drafters": {"kind": "replayed"}}, "'real' could verify; allowed with it: verifiers.kind = 'replayed'"),
        (
            {"drafters": BESIDE, "verifiers": REALIGN | {"kind": "replayed"}},
            "verifiers.aligned runs its models; leave verifiers.kind = 'replayed' or verifiers.aligned out",
        ),
        ({"workload": LENGTHS | {"prompt_tokens": 20}}, "has the lengths; leave workload.prompt_tokens out"),
        ({"workload": LENGTHS | {"new_tokens": 20}}, "has the lengths; leave workload.new_tokens out"),
        ({"workload": {"lengths": "chat", "new_tokens": 20}}, "'chat' has the lengths; leave workload.new_tokens out"),
        ({"workload": LENGTHS | {"arrivals": TRACE}}, "the trace .* the lengths; leave workload.lengths out"),
        ({"drafters": {"order": {"policy": "weighted", "weights": []}}}, r"= \[\]"),
        (
            {"drafters": {"count": 9, "tiers": [{"first": 5} | LINK, {"first": 2} | LINK]}},
            "drafters.tiers: first = 2 comes after ",
        ),
        (
            {"verifiers": {"count": 9, "tiers": [{"first": 2} | LINK] * 2}},
            "verifiers.tiers: first = 2 comes after first = 2",
        ),
        (
            {"drafters": BESIDE, "verifiers": {"tiers": [{"first": 1} | LINK]}},
            "verifiers.tiers: first = 1: drafters.place = 'target' has no links; leave link out",
        ),
        (SWITCH | {"workload": {"requests": 5, "streams": 5}}, "in a domain of its own; leave acceptance.switch out"),
        (SWITCH | {"workload": {"arrivals": POISSON}}, "in a domain of its own; leave acceptance.switch out"),
        (
            {"drafters": {"tiers": [{"first": 5}]}},
            "tiers: first = 5 changes nothing; give profile, step, link or model",
        ),
        (
            {"devices": {"host": {}}, "verifiers": {"device": "host", "tiers": [{"first": 1, "profile": "a100"}]}},
            "verifiers.tiers: first = 1: profile is of another machine, and all are on devices.host",
        ),
        (
            {"drafters": BESIDE, "verifiers": {"allocate": GOODPUT, "tiers": [{"first": 1, "step": {"base_s": 1}}]}},
            "verifiers.allocate = 'goodput' has the costs of like targets; state them, or",
        ),
        (
            {"drafters": BESIDE, "verifiers": {"tiers": [{"first": 1, "profile": "a100"}]}},
            "verifiers.tiers: first = 1: profile is of another machine, and their drafts are of one kind",
        ),
        (
            {"drafters": {"depth": 3}, "verifiers": {"allocate": {"policy": "fixed", "depth": 2}}},
            "verifiers.allocate has the speculation lengths; leave drafters.depth out",
        ),
        ({"verifiers": {"priorities": [2, 1]}}, "drafters.order 'fifo' .* leave verifiers.priorities out"),
        ({"drafters": {"lease_s": 3.0}}, "verifiers.patience_s = 0"),
        ({"verifiers": {"rejoin_s": 3.0}}, "leave verifiers.rejoin_s"),
        ({"faults": [KILL], "drafters": {"lease_s": 20.0}}, "verifiers.patience_s = 0"),
        ({"faults": [KILL], "verifiers": {"patience_s": 8.0}}, "drafters.lease_s = 0"),
        ({"faults": [KILL], "drafters": {"count": 0}}, "leave faults out"),
        ({"slo": {}}, r"\[slo\] has no goal; give slo.ttft_s"),
        ({"slo": {"ttft_p90_s": 1}}, "unknown key slo.ttft_p90_s = 1; allowed: e2el_s, tpot_s, ttft_s"),
        ({"verifiers": {"max_num_seq": 1}}, "unknown key verifiers.max_num_seq = 1; nearest: max_num_seqs, [a-z_, ]+$"),
        ({"drafters": {"k": 3}}, "unknown key drafters.k = 3; nearest: depth$"),
        ({"measure": {"max_num_seqs": 1}}, "unknown key measure.max_num_seqs = 1; nearest: verifiers.max_num_seqs$"),
        ({"acceptance": {"model": "geometric", "acceptance": 0.7}}, "nearest: acceptance.beta$"),
        ({"drafters": {"max_num_seqs": 3}}, "unknown key drafters.max_num_seqs = 3; nearest: drafters.group$"),
        ({"verifers": {}}, "unknown key verifers = {}; nearest: verifiers, "),
        ({"cost": {}}, "cost.target_per_hour is missing; give it"),
        ({"cost": {"target_per_hour": 1}}, "cost.drafter_per_hour is missing beside cost.target_per_hour"),
        ({"cost": {"drafter_per_hour": 1}}, "cost.target_per_hour is missing; give it"),
        ({"workload": {"prompt_tokens": {"low": 9, "high": 5}}}, "low = 9 is above high = 5"),
        ({"workload": {"prompt_tokens": {"low": 1, "high": 9, "mean": 4}}}, "needs mean and cv"),
        (
            {"workload": {"prompt_tokens": {"low": 1, "high": 9, "mean": 20, "cv": 1}}},
            "mean = 20 is not between low = 1",
        ),
        *(
            (
                {"verifiers": {"allocate": {"policy": "by-batch", "up_to": up_to, "depths": depths}}},
                "up_to rises, and depths has one entry more",
            )
            for up_to, depths in (([64, 64], [3, 1, 0]), ([64], [3]), ([], []))
        ),
        (
            {"verifiers": {"allocate": {"policy": "goodput", "most": 2, "costs": FEW}}},
            "goodput: tables of costs have times of 0 to most = 2 tokens",
        ),
        ({"drafters": BESIDE | {"shape": {"kind": "tree"}}, "verifiers": ADAPTIVE}, "'adaptive' chooses tokens"),
        ({"drafters": BESIDE, "verifiers": REALIGN | ADAPTIVE}, "'adaptive' cuts each row by itself"),
        ({"verifiers": ADAPTIVE}, "by = 'entropy' needs drafters.place = 'target'"),
        ({"drafters": BLOCK | {"shape": {"kind": "tree"}}}, "drafts chains in one pass; leave drafters.shape out"),
        ({"drafters": BLOCK | {"overlap": "ahead"}}, "drafts chains in one pass; leave drafters.overlap out"),
        ({"drafters": BLOCK | BESIDE, "verifiers": {"allocate": "adaedl"}}, "verifiers.allocate = 'adaedl' ends a"),
        ({"drafters": {"count": 2, "route": "longest-prefix"}}, "looks at prefix caches; set drafters.prefix_cache"),
        ({"drafters": BESIDE | {"prefix_cache": True}}, "the target's steps; leave drafters.prefix_cache out"),
        ({"workload": {"shared": {}}}, "needs either tokens or share above 0"),
        ({"workload": {"shared": {"tokens": 64, "share": 0.5}}}, "needs either tokens or share above 0"),
        ({"drafters": {"count": 0}, "verifiers": {"prefill": {"draft_cache": "sent"}}}, "prefill.draft_cache"),
        ({"verifiers": {"prefill": {"first_round_drafts": True}}}, "drafts elsewhere"),
        ({"drafters": BESIDE | {"kind": "eagle"}, "verifiers": REALIGN | APART}, "verifiers.aligned"),
        ({"verifiers": APART | {"device": "gpu"}, "devices": {"gpu": {}}}, "leave verifiers.device out"),
        ({"verifiers": APART, "faults": [{"what": "kill", "node": "verifier.1", "at_s": 1}]}, "faults out"),
        ({"verifiers": {"prefill": {"count": 0}}}, "verifiers.prefill.count"),
        ({"verifiers": {"prefill": {"layers": 32}}}, "bandwidth_bytes_per_s .* leave verifiers.prefill.layers out"),
    ],
)
def test_what_does_not_go_together_is_named(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_scenario(tables)


@pytest.mark.parametrize(
    ("key", "value", "winner"),
    [
        ("profile.acceptance.beta", 0.1, {}),
        ("profile.link", "2ms", {"link": "1ms"}),
        ("profile.verify", "9ms", {"verifiers.verify": "8ms"}),
        ("profile.draft", "9ms", {"drafters.profile": "jetson-orin"}),
    ],
)
def test_a_stated_key_that_another_wins_over_is_refused(key: str, value: Any, winner: dict[str, Any]) -> None:
    for source in ("star", scenario_of("star")):
        with pytest.raises(InputError, match=rf"{key} has no effect, since {[*winner, 'acceptance'][0]} is stated"):
            scenario_of(source, {**winner, key: value})
    if winner:
        scenario_of("star", {key: value})


def test_each_key_says_who_reads_it() -> None:
    tables = {name: getattr(Scenario(), name) for name in ("drafters", "verifiers", "workload", "measure")}
    keys = {f"{name}.{key}" for name, table in tables.items() for key in table.__struct_fields__}
    assert keys | {name for name in Scenario.__struct_fields__ if name not in tables} <= UNREAD.keys()
    assert frozenset().union(*UNREAD.values()) == {*FORMS, "loop", "equations", "engine", "recorded"}


def scenario(**tables: Any) -> Any:
    content = {"name": "case", "profile": PROFILE, "acceptance": {"model": "geometric", "beta": 0.7}}
    return make_scenario(content | {"workload": {"requests": 8, "prompt_tokens": 10, "new_tokens": 200}} | tables)


@pytest.mark.parametrize(
    ("drafters", "allocate", "message"),
    [
        ({}, {"policy": "goodspeed", "budget": 4}, "need to know single tokens"),
        (BESIDE, "dsde", "'per-position' knows neither divergence nor entropy"),
        (BESIDE, "adaedl", "'per-position' knows neither divergence nor entropy"),
        (BESIDE, ADAPTIVE["allocate"], "'per-position' knows neither divergence nor entropy"),
    ],
)
@pytest.mark.parametrize("of_profile", [False, True])
def test_rules_that_learn_from_tokens_need_their_signals(
    drafters: Any, allocate: Any, message: str, of_profile: bool
) -> None:
    tables: dict[str, Any] = {"acceptance": {"model": "per-position", "survival": [0.5] * 20}}
    if of_profile:
        tables = {"acceptance": None, "profile": PROFILE | tables}
    with pytest.raises(InputError, match=message):
        simulate(scenario(**tables, drafters=drafters, verifiers={"allocate": allocate}))


def test_plain_decoding_is_the_same_in_every_place() -> None:
    beside, own = (simulate(scenario(drafters={"place": place, "count": 0})) for place in ("target", "own"))
    assert beside.frame().equals(own.frame())


def test_targets_own_the_streams_dealt_to_them() -> None:
    joins = simulate(
        scenario(
            verifiers={"count": 2, "priorities": [5, 0]},
            drafters={"order": "priority"},
            workload={"requests": 6, "streams": 6},
        )
    )
    frame = joins.frame().query("event == 'join'")
    assert dict(zip(frame.tag, frame.priority, strict=True)) == {0: 5, 1: 0, 2: 5, 3: 0, 4: 5, 5: 0}


def test_requests_that_arrive_by_themselves_are_counted_at_their_targets() -> None:
    arrivals = {"requests": 60, "new_tokens": 40, "arrivals": {"process": "poisson", "per_s": 0.2}}
    run = simulate(scenario(verifiers={"count": 2}, workload=arrivals))
    targets = measure_targets(run)
    assert list(targets.tag) == [0, 1]
    assert targets.throughput.sum() == pytest.approx(measure(run)["throughput"].value)
    assert targets.throughput.min() > 0.6 * targets.throughput.max()


def test_barrier_does_not_wait_for_plain_decoding() -> None:
    scenario_ = scenario(
        drafters={"admit": {"policy": "at-most", "sessions": 2}},
        verifiers={"late": "wait"},
        workload={"requests": 4, "streams": 4, "prompt_tokens": 5, "new_tokens": 60},
    )
    frame = simulate(scenario_).frame().query("event == 'done'")
    first_verify, last_decode = frame[frame.kind == "verify"].time_s.min(), frame[frame.kind == "decode"].time_s.max()
    assert first_verify < last_decode / 2
