"""Methods of speculation side by side, by requests in flight."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

import specfleet
from specfleet.experiments.draw import draw
from specfleet.experiments.plan.candidates import Asked, acceptance_of, candidates_of, link_of
from specfleet.experiments.plan.methods import Methods
from specfleet.fleet.acceptance.models import Geometric, PerPosition
from specfleet.fleet.acceptance.places import write_places
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.hardware.profile import beside, estimated_profile, placed_of
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime

SHORT = {"prompt_tokens": 64, "new_tokens": 40}
TARGET = "llama-3.1-8b@h100"
HEAD = "eagle3-llama-3.1-8b"


@pytest.fixture(scope="module")
def found() -> Methods:
    return specfleet.compare_methods(
        TARGET, [HEAD, "llama-3.2-1b@l4", "lookup"], acceptance=["0.7", "lookup=0"], link="10Gbit+50us",
        in_flight=[8, 1], **SHORT,
    )  # fmt: skip


def test_each_drafter_is_tried_where_it_can_run(found: Methods) -> None:
    assert list(dict.fromkeys(cell.method for cell in found.cells)) == [
        "no speculation", f"{HEAD} on the target's device", "llama-3.2-1b on the target's device",
        "llama-3.2-1b@l4", "prompt lookup",
    ]  # fmt: skip
    assert found.in_flight == (1, 8)
    assert {cell.in_flight: cell.depth for cell in found.of("no speculation")} == {1: 0, 8: 0}


def test_one_request_without_drafts_takes_its_steps(found: Methods) -> None:
    step_s = specfleet.estimate(TARGET).decode.mean_s(1, 84)
    cell = found.of("no speculation")[0]
    assert cell.tpot_s == pytest.approx(step_s, rel=0.02)
    assert cell.tokens_per_s == pytest.approx(1 / step_s, rel=0.06)


def test_more_in_flight_decode_more_and_each_more_slowly(found: Methods) -> None:
    for method in {cell.method for cell in found.cells}:
        one, eight = found.of(method)
        assert one.tokens_per_s < eight.tokens_per_s < 8.3 * one.tokens_per_s
        assert one.tpot_s < eight.tpot_s
        assert eight.kv_share == pytest.approx(8 * one.kv_share)


def test_throughput_and_times_obey_littles_law(found: Methods) -> None:
    long = specfleet.compare_methods(TARGET, [HEAD, "lookup"], acceptance=["0.7"], in_flight=[1, 32], new_tokens=100)
    for tokens, cells in ((40, found.cells), (100, long.cells)):
        for cell in cells:
            latency_s = cell.ttft_s + (tokens - 1) * cell.tpot_s
            assert cell.tokens_per_s / tokens * latency_s == pytest.approx(cell.in_flight, rel=0.015), cell


def test_drafts_that_never_pass_only_cost(found: Methods) -> None:
    for plain, lookup in zip(found.of("no speculation"), found.of("prompt lookup"), strict=True):
        assert lookup.depth == 1
        assert lookup.tokens_per_s < plain.tokens_per_s
        assert lookup.standing.startswith("+")


def test_the_best_costs_least_and_has_a_command(found: Methods) -> None:
    for in_flight in found.in_flight:
        own = [cell for cell in found.cells if cell.in_flight == in_flight]
        best = next(cell for cell in own if cell.standing == "best")
        assert best.per_million == min(cell.per_million for cell in own)
        assert f"in flight: {best.method}" in found.lines[0]
    assert any(line.startswith("serve: vllm serve llama-3.1-8b --max-model-len 1024 ") for line in found.lines)
    assert any('"method": "eagle3"' in line for line in found.lines)


def test_hopeless_drafts_are_turned_off() -> None:
    found = specfleet.compare_methods(TARGET, ["lookup"], acceptance=["0"], in_flight=[2], **SHORT)
    assert "speculate: never; off from 2 in flight on" in found.lines
    assert found.lines[0] == "best: 2 in flight: no speculation (level with prompt lookup)"


def test_a_model_on_two_devices_is_once_on_the_targets() -> None:
    drafts = ("llama-3.2-1b@l4", "llama-3.2-1b@l40s:fp8:kv-fp8")
    made, _ = candidates_of(Asked(f"{TARGET}:fp8:kv-fp8", drafts, ("0.7",), Scenario()))
    assert [one.method for one in made] == ["none", "beside", "apart", "apart"]


def test_a_link_is_the_options_else_the_scenarios() -> None:
    load = Scenario(link=LinkTime(0.005))
    for option, latency_s in (("", 0.005), ("1ms", 0.001)):
        made, _ = candidates_of(Asked(TARGET, ("llama-3.2-1b@l4",), ("0.7",), load, option))
        assert [one.base.link for one in made] == [None, None, LinkTime(latency_s)]


def test_candidates_have_no_faults_and_devices_of_the_scenario() -> None:
    devices = {"drafters.device": "shared", "verifiers.device": "shared", "devices.shared.sharing": "turns"}
    for load in (scenario_of("dying-drafter"), scenario_of("star", devices)):
        made, _ = candidates_of(Asked(TARGET, ("llama-3.2-1b@l4",), ("0.7",), load))
        assert [(one.base.faults, one.base.devices) for one in made] == [((), {})] * 3


def test_an_asked_depth_ends_where_acceptance_is_known() -> None:
    for acceptance, depth in ((".9", 12), (".9,.8,.7", 3)):
        made, _ = candidates_of(Asked(TARGET, ("lookup",), (acceptance,), Scenario()))
        assert [one.depths_to_try(12) for one in made] == [(0,), (depth,)]


def test_a_module_of_the_checkpoint_drafts_beside_its_target() -> None:
    target = "deepseek-r1@8xb200:bf16:mlp-nvfp4"
    made, _ = candidates_of(Asked(target, ("deepseek-mtp",), ("0.8",), Scenario()))
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
    made, _ = candidates_of(Asked(target, (draft,), ("0.8",), Scenario()))
    profile = made[1].base.profile
    assert isinstance(profile, HardwareProfile)
    own = placed_of(target)
    placed = beside(own, shape_of(draft.partition("@")[0]), precision)
    assert profile.draft == estimated_profile(own, placed).draft
    other = {"bf16": "fp8", "fp8": "bf16"}[precision]
    assert profile.draft != estimated_profile(own, msgspec.structs.replace(placed, precision=other)).draft


def test_a_short_kv_cache_is_said() -> None:
    found = specfleet.compare_methods(
        "llama-3.1-70b@2xh100", in_flight=[2], prompt_tokens=20_000, new_tokens=20, jobs=1
    )
    assert found.cells[0].kv_share > 1
    assert found.lines[-1].startswith("KV cache: 2 in flight of no speculation need 13")


def test_a_method_without_room_is_left_out_with_a_line() -> None:
    found = specfleet.compare_methods(
        "llama-3.1-70b@2xh100", ["llama-3.1-8b@l40s"], acceptance=["0.8"], in_flight=[1], depth=2, **SHORT
    )
    assert [cell.method for cell in found.cells] == ["no speculation", "llama-3.1-8b@l40s"]
    assert found.lines[-1].startswith(
        "left out: llama-3.1-8b on the target's device: the drafter and its cache have no"
    )
    with pytest.raises(InputError, match="do not fit into a KV cache"):
        specfleet.compare_methods("llama-3.1-70b@h100:fp8", in_flight=[1], prompt_tokens=10**5)


def test_acceptance_is_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: 5.00 tokens/s, Drafted throughput: "
        "8.00 tokens/s, Accepted: 50 tokens, Drafted: 80 tokens, Per-position acceptance rate: 0.800, 0.450, Avg Draft "
        "acceptance rate: 62.5%\n"
    )
    specfleet.import_record("vllm-log", tmp_path / "log.txt", tmp_path / "mine.toml")
    file, places = tmp_path / "mine.toml", tmp_path / "places.toml"
    read = acceptance_of([f"head={file}", "0.5"])
    assert read == {"head": PerPosition(survival=(0.8, 0.45)), "": Geometric(0.5)}
    (head,) = [one for one in candidates_of(Asked(TARGET, (HEAD,), (str(file),), Scenario()))[0] if one.depths]
    assert head.depths == (1, 2)
    write_places([(2, 1, 0, 2, 1, 0)], tmp_path / "places.parquet")
    places.write_text('[acceptance]\nmodel = "by-place"\nfile = "places.parquet"\ndepth = 2\n')
    assert acceptance_of([str(places)]) == {"": PerPosition(survival=(1.0, 1.0))}
    places.write_text('name = "nothing"\n')
    with pytest.raises(InputError, match="has no acceptance of drafts"):
        acceptance_of([str(places)])


def test_the_figure_has_a_curve_for_each_method(found: Methods, tmp_path: Path) -> None:
    write_file(tmp_path / "methods.json", msgspec.json.encode(found))
    axes = draw("methods", tmp_path / "methods.json", tmp_path / "methods.png").axes[0]
    curves = {line.get_label(): line for line in axes.lines}
    assert curves.keys() >= {cell.method for cell in found.cells}
    one, eight = found.of("no speculation")
    assert curves["no speculation"].get_xydata().tolist() == pytest.approx(
        np.array([[1 / cell.tpot_s, cell.tokens_per_s] for cell in (one, eight)])
    )
    apart = next(cell for cell in found.cells if "@l4" in cell.method)
    assert apart.devices == 1 + 1 / apart.targets


def test_texts_are_read_or_refused_in_one_line() -> None:
    assert acceptance_of(["0.8", "a/b=.5,.25"]) == {"": Geometric(0.8), "a/b": PerPosition(survival=(0.5, 0.25))}
    assert link_of("25Gbit+50us") == LinkTime(50e-6, 25e9 / 8)
    assert link_of("") == LinkTime()
    for wrong, call in (
        ("0.5,0.8", lambda: acceptance_of(["0.5,0.8"])),
        ("neither", lambda: link_of("fast")),
        ("neither", lambda: link_of("0Gbit")),
        ("got one before", lambda: acceptance_of(["a=0.5", "a=0.6"])),
        (
            "no drafter is called so; allowed: lookup",
            lambda: specfleet.compare_methods(TARGET, ["lookup"], acceptance=["0.5", "look=0.9"]),
        ),
        ("give it a price above 0", lambda: specfleet.compare_methods(TARGET, cost=["h100=0"])),
        ("give the share", lambda: specfleet.compare_methods(TARGET, ["lookup"])),
        ("whole numbers from 1", lambda: specfleet.compare_methods(TARGET, in_flight=[0])),
        ("up to 4096 requests", lambda: specfleet.compare_methods(TARGET, in_flight=[10**5])),
        (
            "no drafter is elsewhere",
            lambda: specfleet.compare_methods(TARGET, ["lookup"], acceptance=["1"], link="1ms"),
        ),
        ("target's device, h100", lambda: specfleet.compare_methods(TARGET, [f"{HEAD}@l4"], acceptance=["0.5"])),
        ("leave @l4 out", lambda: specfleet.compare_methods(TARGET, ["lookup@l4"], acceptance=["0.5"])),
        ("the target's tokenizer", lambda: specfleet.compare_methods(TARGET, ["gemma-3-1b"], acceptance=["0.5"])),
    ):
        with pytest.raises(InputError, match=wrong):
            call()
