"""Ways to draft for a target: places, acceptance, links and prices, and what is refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import specfleet
from specfleet.experiments.plan.candidates import Asked, make_candidates
from specfleet.experiments.plan.texts import read_acceptances, read_in_flight, read_link, read_rates
from specfleet.fleet.acceptance.models import Geometric, PerPosition
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import beside, estimated_profile, placed_of
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.reading import change_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime
from tests.helpers.plans import candidates

TARGET = "llama-3.1-8b@h100"
HEAD = "eagle3-llama-3.1-8b"


def test_a_model_on_two_devices_is_once_on_the_targets() -> None:
    drafts = ("llama-3.2-1b@l4", "llama-3.2-1b@l40s:fp8:kv-fp8")
    made, *_ = make_candidates(Asked(Scenario(), (f"{TARGET}:fp8:kv-fp8",), drafts, ("0.7",)))
    assert [one.method for one in made] == ["none", "beside", "apart", "apart"]


def test_a_drafter_of_blocks_drafts_them_at_each_place() -> None:
    drafts = ("pard-qwen3-0.6b@l4", "dflash", "dspark")
    made, *_ = make_candidates(Asked(Scenario(), ("qwen3-8b@h100",), drafts, ("0.7",)))
    assert [one.method for one in made] == ["none", "block", "apart", "block", "block"]
    assert {one.base.drafters.kind for one in made[1:]} == {"block"}
    assert [one.depths[-1] for one in made[1:]] == [15, 15, 15, 7]


def test_a_link_is_the_options_else_the_scenarios() -> None:
    load = Scenario(link=LinkTime(0.005))
    for option, latency_s in (("", 0.005), ("1ms", 0.001), ("0ms", 0.0)):
        made, *_ = make_candidates(Asked(load, (TARGET,), ("llama-3.2-1b@l4",), ("0.7",), option))
        assert [one.base.link for one in made] == [None, None, LinkTime(latency_s)]


def test_an_asked_depth_ends_where_acceptance_is_known() -> None:
    for acceptance, depth in ((".9", 12), (".9,.8,.7", 3)):
        made, *_ = make_candidates(Asked(Scenario(), (TARGET,), ("lookup",), (acceptance,), depths=(12,)))
        assert [one.depths for one in made] == [(0,), (depth,)]


def test_a_module_of_the_checkpoint_drafts_beside_its_target() -> None:
    target = "deepseek-r1@8xb200:bf16:mlp-nvfp4"
    made, *_ = make_candidates(Asked(Scenario(), (target,), ("deepseek-mtp",), ("0.8",)))
    assert [one.method for one in made] == ["none", "head"]


@pytest.mark.parametrize(
    ("target", "draft", "precision"),
    [
        ("deepseek-v3@8xh200:fp8", "deepseek-mtp", "fp8"),
        ("deepseek-v3@8xb300:bf16", "deepseek-mtp", "bf16"),
        (f"{TARGET}:fp8", "llama-3.2-1b", "bf16"),
        (f"{TARGET}:fp8", "llama-3.2-1b@h100:fp8", "fp8"),
    ],
)
def test_a_drafter_has_the_precision_of_its_checkpoint(target: str, draft: str, precision: str) -> None:
    made, *_ = make_candidates(Asked(Scenario(), (target,), (draft,), ("0.8",)))
    profile = made[1].base.profile
    assert isinstance(profile, HardwareProfile)
    own = placed_of(target)
    placed = beside(own, shape_of(draft.partition("@")[0]), precision)
    assert profile.draft == estimated_profile(own, placed).draft
    other = {"bf16": "fp8", "fp8": "bf16"}[precision]
    assert profile.draft != estimated_profile(own, msgspec.structs.replace(placed, precision=other)).draft


def test_acceptance_is_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: 5.00 tokens/s, Drafted throughput: "
        "8.00 tokens/s, Accepted: 50 tokens, Drafted: 80 tokens, Per-position acceptance rate: 0.800, 0.450, Avg Draft "
        "acceptance rate: 62.5%\n"
    )
    specfleet.import_record("vllm-log", tmp_path / "log.txt", tmp_path / "mine.toml")
    file, nothing = tmp_path / "mine.toml", tmp_path / "nothing.toml"
    read = read_acceptances([f"head={file}", "0.5"])
    assert read == {"head": PerPosition(survival=(0.8, 0.45)), "": Geometric(0.5)}
    _, head = candidates(TARGET, HEAD, acceptance=str(file))
    assert head.depths == (1, 2)
    nothing.write_text('name = "nothing"\n')
    with pytest.raises(InputError, match="has no acceptance of drafts"):
        read_acceptances([str(nothing)])


def test_servers_have_vllms_limits_unless_a_scenario_states_others() -> None:
    stated = {"verifiers.max_num_seqs": 64}
    for changes, target, limits in (
        ({}, TARGET, (1024, 8192)), ({}, "llama-3.1-8b@l4", (256, 2048)), (stated, TARGET, (64, 8192))
    ):  # fmt: skip
        (one,) = candidates(target, scenario=scenario_of("star", changes))
        assert (one.base.verifiers.max_num_seqs, one.base.verifiers.max_num_batched_tokens) == limits
    (one,) = candidates(TARGET, scenario=scenario_of("star"), given=frozenset(["verifiers.max_num_seqs"]))
    assert one.base.verifiers.max_num_seqs == 1


def test_a_scenarios_rules_hold_where_they_have_an_effect() -> None:
    scenario = scenario_of("star", {"verifiers.late": "decode", "verifiers.patience_s": 1.0, "drafters.lease_s": 5.0})
    vary = {"drafters.order": ["fifo", "priority"]}
    made = candidates(TARGET, "llama-3.2-1b@l4", scenario=scenario, vary=vary, serving=False)
    assert [one.method for one in made] == ["none", "beside", "apart", "apart"]
    assert [one.name.partition(", ")[2] for one in made] == ["", "", "order fifo", "order priority"]
    for one in made:
        assert change_scenario(one.base, {}) == one.base  # it is read again from its file


def test_a_rule_of_lengths_has_its_own_depths() -> None:
    rule = {"verifiers.allocate": {"policy": "fixed-share", "budget": 3}}
    count, vary = {"verifiers.count": [1]}, {key: [value] for key, value in rule.items()}
    for stated, varied in ((rule, {}), ({}, vary)):
        found = specfleet.plan("star", {"workload.new_tokens": 8, **stated}, vary=count | varied, jobs=1)
        assert {row.depth for row in found.rows if row.drafters} == {3}
        assert found.scenario is not None
        assert change_scenario(found.scenario, {}) == found.scenario  # it is read again from its file
        with pytest.raises(InputError, match=r"drafters.depth: verifiers.allocate has the speculation lengths; leave"):
            specfleet.plan("star", stated, vary=count | varied | {"drafters.depth": [2]})


def test_prices_by_role_do_not_apply_to_several_devices() -> None:
    scenario = msgspec.structs.replace(scenario_of("star"), cost=Cost(3.0, 1.0))
    drafts = ("llama-3.2-1b@l4", "llama-3.2-1b@h100")
    with pytest.raises(InputError, match=r"\[cost\] has one price for every drafter; give --cost l4=COST,h100=COST"):
        candidates(TARGET, *drafts, scenario=scenario)
    *_, one = candidates(TARGET, drafts[0], scenario=scenario)
    assert (one.target_per_hour, one.drafter_per_hour) == (3.0, 1.0)


def test_texts_are_read_or_refused_in_one_line() -> None:
    assert read_acceptances(["0.8", "a/b=.5,.25"]) == {"": Geometric(0.8), "a/b": PerPosition(survival=(0.5, 0.25))}
    assert read_link("25Gbit+50us") == LinkTime(50e-6, 25e9 / 8)
    assert read_link("0ms") == LinkTime()
    assert (read_rates("1/s,30/min"), read_rates(2.0), read_in_flight("1,8", 8)) == ([1.0, 0.5], [2.0], [1, 8])
    for wrong, call in (
        ("0.5,0.8", lambda: read_acceptances(["0.5,0.8"])),
        ("neither", lambda: read_link("fast")),
        ("neither.*0ms is none", lambda: read_link("0Gbit")),
        ("above 0 and below 1e\\+09", lambda: read_rates("1e9/s")),
        ("whole numbers", lambda: read_in_flight("1,many", 8)),
        ("from 1; simulated up to 8", lambda: read_in_flight([9], 8)),
        ("got one before", lambda: read_acceptances(["a=0.5", "a=0.6"])),
    ):
        with pytest.raises(InputError, match=wrong):
            call()


@pytest.mark.parametrize(
    ("drafts", "more", "said"),
    [
        (["lookup"], {"acceptance": ("0.5", "look=0.9")}, "no drafter is called so; allowed: lookup"),
        ([], {"cost": ("h100=0",)}, "give it a price above 0"),
        (["lookup"], {"acceptance": ()}, "give the share of lookup's"),
        (["lookup"], {"link": "1ms"}, "no drafter is elsewhere"),
        ([f"{HEAD}@l4"], {}, "h100; it reads hidden states there, and small models draft elsewhere; leave @l4"),
        (["lookup@l4"], {}, "leave @l4 out"),
        (["gemma-3-1b"], {}, "the target's tokenizer"),
        (["llama-3.2-1b@l4"], {"cost": ("h100=700W",)}, "l4 has no price; add --cost l4=COST"),
    ],
)
def test_drafters_that_are_none_are_refused_in_one_line(drafts: list[str], more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        candidates(TARGET, *drafts, **more)
