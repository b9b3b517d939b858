"""Estimated step times: laws of every roofline, labels of every number."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.device import LABELS, Figure
from specfleet.fleet.hardware.passes import (
    WEIGHT_BYTES,
    Placed,
    all_reduce_s,
    computes_in,
    distinct_experts,
    precisions_of,
    product_s,
    products_s,
    rewrite_s,
    roofline_of,
)
from specfleet.fleet.hardware.profile import beside, estimated_profile, kv_memory, placed_of
from specfleet.fleet.hardware.shipped import device_of, engine_of, shape_of
from specfleet.fleet.hardware.tables import Measured
from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.shapes import CHAIN
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers
from specfleet.fleet.times.labels import basis_of, estimated_numbers, label_of, rests_on_assumed
from specfleet.fleet.times.mixed import pass_s
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.profile import STEPS, HardwareProfile, read_profile
from specfleet.fleet.times.station_times import VerifierTimes
from specfleet.fleet.times.step import Member, Step
from specfleet.fleet.times.step_time import StepTime

DEVICES = list(shipped_files("devices"))
PARALLEL = (1, 2, 4, 8)


@cache
def on(model: str, device: str, parallel: int = 1, precision: str = "bf16") -> Placed:
    """A model on a device, whether or not it fits its memory: laws hold for every size."""
    return Placed(shape_of(model), device_of(device), engine_of("graphs"), precision, parallel, model)


def least_s(place: Placed, fed: int, context: int) -> tuple[float, float]:
    """The least time of a pass: bytes over the peak bandwidth, operations over the peak rate, each counted anew."""
    shape, peaks = place.shape, place.device
    experts = min(shape.experts, fed * shape.experts_used) and shape.experts_used
    wide = sum(count * 3 * shape.hidden * width for count, width in shape.wide_layers)
    used = 3 * shape.hidden * (experts * shape.intermediate + shape.shared_intermediate) * shape.expert_layers
    attention = sum(inputs * outputs for inputs, outputs in shape.projections())
    attention *= shape.layers - shape.linear_layers
    head = shape.hidden * shape.head_outputs
    attention += shape.linear_layers * sum(inputs * outputs for inputs, outputs in shape.linear_projections())
    layers = attention + wide + used
    far = shape.layers - shape.windowed_layers - shape.linear_layers
    expert_bytes = used * WEIGHT_BYTES[place.expert_precision]
    cache_bytes = 2 * shape.cache_numbers * (far * context + shape.windowed_layers * min(context, shape.window))
    weights_bytes = (layers - used) * WEIGHT_BYTES[place.precision] + expert_bytes + 2 * head
    memory_s = (weights_bytes + cache_bytes) / peaks.bandwidth_bytes_per_s.value
    head_s = 2 * fed * head / peaks.compute["bf16"].value
    rate = max(peaks.compute[computes_in(each, peaks)].value for each in (place.precision, place.expert_precision))
    compute_s = 2 * fed * layers / rate + head_s
    return memory_s / place.parallel, compute_s / place.parallel


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "gemma-3-27b", "qwen3-30b-a3b", "eagle3-llama-3.1-8b", "glm-4.5-air", "gpt-oss-20b",
              "qwen3.5-122b-a10b"]
)  # fmt: skip
def test_passes_are_not_faster_than_the_devices_peaks(model: str, device: str) -> None:
    for precision in precisions_of(device_of(device)):
        for parallel in PARALLEL[:2]:
            place = on(model, device, parallel, precision)
            roofline = roofline_of(place)
            for fed in (1, 3, 64, 777, 20_000):
                for context in (0, 3000):
                    time_s = roofline.mean_s(fed, context)
                    assert time_s >= max(least_s(place, fed, context)), (precision, parallel, fed, context)


def test_sixteen_bits_are_fp16_on_a_device_without_bf16() -> None:
    both = on("qwen3-30b-a3b", "l4")
    rate = both.device.compute["fp16"]
    old = msgspec.structs.replace(both, device=msgspec.structs.replace(both.device, compute={"fp16": rate}))
    assert roofline_of(old) == roofline_of(both)
    assert precisions_of(old.device) == ["bf16", "fp16", "int4", "mxfp4", "nvfp4", "int4g64", "int4g32", "w8a16"]
    with pytest.raises(ValueError, match="needs compute of 16 bits"):
        msgspec.structs.replace(both.device, compute={"fp8": rate})


GROWING = ("layers", "hidden", "heads", "intermediate", "vocabulary")


@pytest.mark.parametrize("key", GROWING)
@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen3-30b-a3b", "gemma-3-4b"])
def test_time_never_falls_with_the_size_of_a_model(model: str, key: str) -> None:
    small = on(model, "h100")
    grown = msgspec.structs.replace(small.shape, **{key: 2 * getattr(small.shape, key)})
    large = msgspec.structs.replace(small, shape=grown)
    for fed in (1, 64, 2048):
        assert roofline_of(large).mean_s(fed, 1000) >= roofline_of(small).mean_s(fed, 1000)
    assert large.weights_bytes > small.weights_bytes


@pytest.mark.parametrize("device", ["h100", "l40s"])
@pytest.mark.parametrize("model", ["llama-3.1-70b", "llama-3.2-1b", "qwen3-235b-a22b"])
def test_tensor_parallel_speedup_is_at_most_linear(model: str, device: str) -> None:
    for fed in (1, 64, 2048):
        alone_s = roofline_of(on(model, device)).mean_s(fed, 2000)
        for parallel in PARALLEL[1:]:
            assert roofline_of(on(model, device, parallel)).mean_s(fed, 2000) >= alone_s / parallel


def test_large_models_gain_more_from_nvlink_than_from_pcie() -> None:
    def gain(device: str) -> float:
        one_s, two_s = (roofline_of(on("llama-3.1-70b", device, count)).mean_s(256) for count in (1, 2))
        return one_s / two_s

    assert 1.5 < gain("h100") < 2
    assert gain("h100-pcie") < gain("h100")


def test_interpolated_rooflines_are_within_one_percent_of_the_formula() -> None:
    for model in ("llama-3.1-8b", "qwen3-30b-a3b"):
        place = on(model, "h100")
        roofline = roofline_of(place)
        bare = msgspec.structs.replace(roofline, attention=())
        for fed in (7, 37, 117, 333, 1111, 9000):
            assert bare.mean_s(fed) == pytest.approx(products_s(place, fed, fed), rel=0.01)


def test_more_experts_are_read_the_more_tokens_choose_among_them() -> None:
    assert distinct_experts(128, 8, 1) == pytest.approx(8)
    assert distinct_experts(128, 8, 2) == pytest.approx(16 - 8 * 8 / 128)
    assert distinct_experts(128, 8, 10_000) == pytest.approx(128)
    place = on("qwen3-30b-a3b", "h100")
    unlike, alike = (roofline_of(place, alike=copies).mean_s(1, 0, 8, 7) for copies in (False, True))
    assert alike < unlike


def test_smaller_weights_are_read_sooner() -> None:
    by_precision = {name: roofline_of(on("llama-3.1-8b", "h100", 1, name)).mean_s(1) for name in WEIGHT_BYTES}
    assert by_precision["int4"] < by_precision["nvfp4"] < by_precision["fp8"] == by_precision["int8"]
    assert by_precision["fp8"] < by_precision["bf16"]


def test_caches_grow_as_by_hand() -> None:
    """A latent of 512 and a rotated key of 64 in 61 layers; 8 heads of 64 in the half of the layers without a window;
    2 heads of 256 in every fourth layer."""
    per_token = {name: shape_of(name).cache_bytes_per_token() for name in ("deepseek-v3", "gpt-oss-120b")}
    assert per_token == {"deepseek-v3": 61 * (512 + 64) * 2, "gpt-oss-120b": 18 * 2 * 8 * 64 * 2}
    assert shape_of("qwen3.5-397b-a17b").cache_bytes_per_token() == 15 * 2 * 2 * 256 * 2
    on_eight, llama = (kv_memory(on(name, "h200", 8, "fp8"), None) for name in ("deepseek-v3", "llama-3.1-70b"))
    assert on_eight.token_bytes == per_token["deepseek-v3"]  # a latent is not split
    assert llama.token_bytes == 80 * 2 * 8 * 128 * 2 / 8


def cached(profile: HardwareProfile, **keys: Any) -> ContinuousBatching:
    """The limits of a target with these keys."""
    scenario = Scenario(profile=profile, drafters=Drafters(count=0), verifiers=Verifiers(**keys))
    return resolve(scenario).verifiers.batching


@pytest.mark.parametrize(
    ("place", "used"), [("llama-3.1-8b@h100", 0.5), ("llama-3.1-70b@4xh100", 0.8), ("llama-3.1-70b@h200", 1.0)]
)
def test_the_kv_cache_takes_what_weights_leave_of_the_used_share(place: str, used: float) -> None:
    """The last one does not fit into 92 % of its device."""
    placed, profile = placed_of(place), estimated_profile(placed_of(place))
    left_bytes = used * placed.device.memory_bytes.value - placed.weights_bytes / placed.parallel - 3 * 2**30
    expected = left_bytes / placed.token_bytes(placed.parallel)
    for block in (16, 128):
        batching = cached(profile, gpu_memory_utilization=used, kv_block_size=block)
        assert batching.block_size == block
        assert -1e-6 <= expected - batching.kv_blocks * block < block


@pytest.mark.parametrize("keys", [{"gpu_memory_utilization": 0.8}, {"kv_block_size": 32}])
def test_keys_of_an_unknown_memory_are_refused(keys: dict[str, Any]) -> None:
    profile = HardwareProfile(name="", draft=StepTime(), verify=StepTime(base_s=1))
    with pytest.raises(InputError, match=f"verifiers.{next(iter(keys))} = .* give verifiers.kv_tokens"):
        cached(profile, **keys)


def test_a_drafter_whose_heads_do_not_divide_is_on_one_device() -> None:
    target = on("qwen2.5-72b", "h100", 4)
    for name, share in (("qwen2.5-0.5b", 1), ("qwen2.5-1.5b", 4)):
        drafter = beside(target, shape_of(name))
        kv = kv_memory(target, drafter)
        assert (drafter.parallel, kv.drafter_bytes) == (share, drafter.weights_bytes / share)
        assert kv.drafter_token_bytes == drafter.shape.cache_bytes_per_token() / min(share, drafter.shape.kv_heads)


def test_parts_have_precisions_of_their_own() -> None:
    """gpt-oss as published: 63 and 14 GB of files (60.8 and 12.8 GiB by the model card)."""
    published = {"gpt-oss-120b": 60.8, "gpt-oss-20b": 12.8}
    assert {name: on(name, "h100").weights_bytes / 2**30 for name in published} == pytest.approx(published, rel=0.01)
    plain, mlp, experts = (placed_of(f"deepseek-r1@8xb200:fp8{part}") for part in ("", ":mlp-nvfp4", ":experts-nvfp4"))
    layer = 3 * 7168 * 2048  # an expert's
    assert plain.weights_bytes - experts.weights_bytes == pytest.approx(58 * 256 * layer * (1 - 0.5625))
    shared_and_dense = 58 * layer + 3 * 3 * 7168 * 18432
    assert experts.weights_bytes - mlp.weights_bytes == pytest.approx(shared_and_dense * (1 - 0.5625))
    assert roofline_of(mlp).mean_s(1) < roofline_of(experts).mean_s(1) < roofline_of(plain).mean_s(1)
    assert "mlp-nvfp4" in mlp.named
    assert "experts-mxfp4" in placed_of("gpt-oss-20b@h100").named


def test_long_rows_expand_a_latent_and_pairs_cost_less() -> None:
    (kind,) = roofline_of(on("deepseek-r1", "h200", 8, "fp8")).attention
    pair, expanded = 2 * 128 * (576 + 512), 2 * 128 * (192 + 128)  # operations of a pair in a layer
    assert kind.long_pair == pytest.approx(expanded / pair)
    assert kind.long_from == 171  # 2 x 512 x 128 x 256 to expand a token, over the saving of a pair
    (_, few_s), (_, many_s) = (kind.work_s(fed, fed, 1, 8000) for fed in (170, 172))
    assert many_s < few_s


def test_a_state_is_read_and_written_once_by_a_row_that_decodes() -> None:
    full, linear = roofline_of(on("qwen3.5-397b-a17b", "b200", 8)).attention
    state_bytes = 45 * 64 * 128 * 128 * 4 / 8
    for context in (500, 50_000):
        read_s, _ = linear.work_s(1, 1, 1, context)
        assert read_s == pytest.approx(2 * state_bytes / (0.903 * 7.75e12))
    assert linear.work_s(6400, 6400, 1, 0)[0] == pytest.approx(100 * state_bytes / (0.903 * 7.75e12))
    assert full.window == 0


def test_device_and_engine_figures_have_labelled_sources() -> None:
    for made in (*map(device_of, shipped_files("devices")), *map(engine_of, shipped_files("engines"))):
        for name, figure in made.figures().items():
            assert figure.source.startswith(tuple(f"{label}: " for label in LABELS)), name
    with pytest.raises(ValueError, match="a source begins with"):
        Figure(1.0, "somewhere")


def pair(engine: str = "graphs") -> HardwareProfile:
    places = (placed_of(f"{model}@h100", engine=engine) for model in ("llama-3.1-8b", "eagle3-llama-3.1-8b"))
    return estimated_profile(*places)


def test_an_estimated_profile_labels_all_that_it_holds() -> None:
    profile = pair()
    given = {name for name in profile.__struct_fields__ if getattr(profile, name) != _default(name)}
    assert given - {"name", "sources"} <= profile.sources.keys()
    assert estimated_numbers(profile) == [*STEPS, "realign", "kv"]
    assert basis_of(profile) == "estimated"
    assert all(label_of(source) != "measured" for source in profile.sources.values())
    assert {basis_of(read_profile(name, Path())) for name in ("a100", "rtx-4090")} == {"stated"}
    assert basis_of(read_profile("jetson-orin", Path())) == "assumed"


def test_estimates_say_whether_a_device_has_measured_efficiencies() -> None:
    profile = estimated_profile(placed_of("llama-3.1-8b@h100"), placed_of("llama-3.2-1b@l40s"))
    assert not rests_on_assumed(profile, "target")
    assert rests_on_assumed(profile, "drafter")
    assert not any(rests_on_assumed(read_profile(name, Path()), "target") for name in ("a100", "rtx-4090"))


def test_mixtures_have_host_times_of_their_own() -> None:
    engine = engine_of("sglang")
    dense, mixture = (
        estimated_profile(placed_of(f"{model}@8xh200", "sglang")) for model in ("llama-3.1-70b", "glm-4.5-air")
    )
    assert engine.mixture_request_s is not None
    assert engine.mixture_row_s is not None
    assert (dense.request_s, dense.verify.per_row_s) == (engine.request_s.value, engine.row_s.value)
    assert (mixture.request_s, mixture.verify.per_row_s) == (engine.mixture_request_s.value, engine.mixture_row_s.value)
    assert engine.mixture_step_s is not None
    assert dense.verify.base_s == engine.step_s.value + engine.row_s.value
    assert mixture.verify.base_s == engine.mixture_step_s.value + engine.mixture_row_s.value


@pytest.mark.parametrize("tabled", [None, Measured((1.0, 2.0), (0.0, 0.0))])
def test_layers_with_experts_take_longer_on_several_devices(tabled: Measured | None) -> None:
    """TensorRT-LLM's tables hold what rooflines lack."""
    for count in (1, 8):
        placed = msgspec.structs.replace(placed_of(f"glm-4.5-air@{count}xb200:fp8", "trtllm"), tabled=tabled)
        none = msgspec.structs.replace(placed.engine, mixture_layer_s=Figure(0.0, "assumed: none"))
        without = roofline_of(msgspec.structs.replace(placed, engine=none))
        added_s = (count > 1 and tabled is None) * placed.engine.mixture_layer_s.value
        longer_s = roofline_of(placed).products_s(16) - without.products_s(16)
        assert longer_s == pytest.approx(placed.shape.expert_layers * added_s)


def _default(name: str) -> Any:
    return getattr(HardwareProfile(name="", draft=StepTime(), verify=StepTime()), name)


def test_drafts_take_one_pass_per_token_verifications_one() -> None:
    profile, target = pair(), roofline_of(on("llama-3.1-8b", "h100"))
    engine = engine_of("graphs")
    step_s, draft_s = engine.step_s.value, engine.draft_s.value if engine.draft_s else 0.0
    head = roofline_of(on("eagle3-llama-3.1-8b", "h100"), in_turn=True)
    assert profile.verify.mean_s(6, 500) == pytest.approx(step_s + target.mean_s(6, 500))
    assert profile.draft.mean_s(5, 500) == pytest.approx(draft_s + head.mean_s(5, 500))
    assert head.mean_s(5, 500) == pytest.approx(5 * engine.pass_s.value)  # which the host launches
    assert head.mean_s(5, 500) == pytest.approx(5 * head.mean_s(1, 502), rel=1e-6)
    assert profile.verify_prefill.mean_s(2000) < profile.verify.mean_s(2000)  # one token is scored
    alone = estimated_profile(placed_of("llama-3.1-8b@h100"))
    assert alone.draft.mean_s(1, 500) == pytest.approx(alone.decode.mean_s(1, 500))


def test_a_row_costs_the_same_alone_and_among_others() -> None:
    profile, row_s = estimated_profile(placed_of("llama-3.1-8b@h100", "vllm")), engine_of("vllm").row_s.value
    times = VerifierTimes(0, profile.verify, profile.verify_prefill, profile.decode, Overhead())
    one, two = (Step(0, "decode", tuple(Member(tag, 0, 0, 500, 1) for tag in range(rows))) for rows in (1, 2))
    assert pass_s(times, one, CHAIN) == pytest.approx(profile.decode.mean_s(1, 500))
    assert pass_s(times, two, CHAIN) == pytest.approx(profile.decode.mean_s(1, 500, 2, 1))
    bare = estimated_profile(placed_of("llama-3.1-8b@h100"))
    assert profile.decode.mean_s(1, 500, 2, 1) - bare.decode.mean_s(1, 500, 2, 1) == pytest.approx(2 * row_s)
    assert profile.verify_prefill.mean_s(500) - bare.verify_prefill.mean_s(500) == pytest.approx(row_s)


def test_a_cache_of_8_bits_takes_half_the_memory_and_half_the_reads() -> None:
    wide, small = (estimated_profile(placed_of(f"llama-3.1-8b@h100:fp8{cache}")) for cache in ("", ":kv-fp8"))
    assert wide.kv
    assert small.kv
    assert small.kv.token_bytes == wide.kv.token_bytes / 2
    assert wide.verify.roofline
    assert small.verify.roofline
    assert small.verify.roofline.attention[0].read_s == wide.verify.roofline.attention[0].read_s / 2
    assert small.sources["verify"].count("kv-fp8") == 1


def test_more_than_two_devices_share_a_host_bridge() -> None:
    """All-reduces of 2 MiB, measured: 0.117, 0.84 and 2.08 ms."""
    times_s = [all_reduce_s(on("llama-3.1-8b", "l40s", count), 2**20) for count in (2, 4, 8)]
    assert times_s == pytest.approx([0.117e-3, 0.84e-3, 2.08e-3], rel=0.05)
    assert all_reduce_s(on("llama-3.1-8b", "h100", 8), 2**20) < 0.03e-3


def test_products_of_8_bits_quantise_their_inputs() -> None:
    place, wide = (on("llama-3.1-8b", "h100", 1, precision) for precision in ("fp8", "bf16"))
    free_s, own_s = product_s(place, 800, 4096, 4096, quantised=0), product_s(place, 800, 4096, 4096)
    assert own_s - free_s > 3 * 800 * 4096 / place.device.bandwidth_bytes_per_s.value  # two bytes read, one written
    assert product_s(wide, 800, 4096, 4096, quantised=0) == product_s(wide, 800, 4096, 4096)


def test_realignment_rewrites_all_caches() -> None:
    profile = pair()
    place = on("llama-3.1-8b", "h100").device
    both_bytes = sum(shape_of(name).cache_bytes_per_token() for name in ("llama-3.1-8b", "eagle3-llama-3.1-8b"))
    least_bytes_s = 2 * both_bytes / place.bandwidth_bytes_per_s.value
    assert 1 < profile.realign.mean_s(1, 100, rows=4, row_tokens=3) / (least_bytes_s * 400) < 3
    assert shape_of("llama-3.1-8b").cache_bytes_per_token() == 131072
    one, eight = (rewrite_s(on("deepseek-v3", "b300", devices, "fp8")) for devices in (4, 8))
    assert one == eight  # a latent is not split


def test_eager_passes_are_bound_by_launches_on_fast_devices() -> None:
    layer_s = engine_of("eager").layer_s.value
    assert pair("eager").decode.mean_s(1, 100) == pytest.approx(32 * layer_s)
    assert pair("eager").draft.mean_s(1, 100) == pytest.approx(layer_s)
