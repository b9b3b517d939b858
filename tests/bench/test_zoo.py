"""The zoo as a law: admitted types compute what transformers computes, and decode the same, in every mode."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING, PretrainedConfig

from bench.tiny_models import POSITIONS, VARIANTS, WINDOW, network_of, tiny_config
from bench.zoo import DEPTH, TOLERANCE, largest_difference, modes_equal, names_of, tried
from specfleet.engine.decoding import models
from specfleet.engine.decoding.admitted import ADMITTED, NAMES, config_of, longest_row, refusal
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.feed import Feed
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.fleet.errors import InputError
from tests.helpers.marks import slow

IN_ALL_MODES = {"gpt2", "mistral"}  # in the quick loop; the numbers of these beside them
IN_NUMBERS = [
    "cohere2", "gemma2", "gemma3_text", "gpt_bigcode", "gpt_oss", "granite_swa", "llama", "mixtral", "nemotron",
    "modernbert-decoder", "opt", "qwen2_moe", "llama, llama3 rope", "llama, biased attention", "phi3, longrope",
    "opt, projected", "qwen3, no window", "glm4", "gemma2, no caps", "qwen3",
]  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.fixture(autouse=True)
def one_thread() -> object:
    """Tiny models lose by more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "name", [name if name in IN_ALL_MODES else slow(name) for name in (*sorted(ADMITTED), *VARIANTS)]
)
def test_admitted_types_and_their_variants_decode_as_transformers_does(name: str) -> None:
    row = tried(name)
    assert row["difference"] < TOLERANCE
    assert row["other texts"] == ""


@pytest.mark.parametrize("name", IN_NUMBERS)
def test_next_token_probabilities_are_those_of_transformers(name: str) -> None:
    assert largest_difference(network_of(tiny_config(name))) < TOLERANCE


@pytest.mark.parametrize(
    ("kind", "least"),
    [("granite", 0.1), ("cohere", 0.1), ("gemma2", 0.1), ("gemma3_text", 0.1), ("nanochat", 0.1), ("hyperclovax", 0.1)],
)
def test_a_head_without_its_final_scaling_is_noticed(kind: str, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "make_head", lambda model: model.get_output_embeddings())
    assert largest_difference(network_of(tiny_config(kind))) > least


@pytest.mark.parametrize("kind", ["mistral", "gpt_oss", "cohere2"])
def test_a_window_by_places_of_a_tree_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert WINDOW < DEPTH  # a draft is deeper than the window

    def by_place(feed: Feed, window: int) -> torch.Tensor | None:
        visible = feed.visible
        newest = feed.positions if feed.gather is None else feed.positions[feed.gather]
        return None if visible is None else visible & (feed.places > newest.view(feed.batch, -1, 1) - window)

    monkeypatch.setattr(Feed, "within", by_place)
    assert largest_difference(network_of(tiny_config(kind))) > 0.01


def test_a_wrong_cache_of_a_drafter_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(tiny_config("hyperclovax"))
    assert modes_equal(network, ["own drafts accepted"]) == {"own drafts accepted": True}

    @torch.inference_mode()
    def forget(drafter: Drafter, *_: object) -> None:
        drafter.cache.storage.zero_()

    monkeypatch.setattr(Drafter, "_keep", forget)
    assert modes_equal(network, ["own drafts accepted"]) == {"own drafts accepted": False}


def test_every_admitted_type_is_known_to_transformers() -> None:
    assert set(names_of()) - set(VARIANTS) >= ADMITTED
    assert len(ADMITTED) == len(NAMES.split())


@pytest.mark.parametrize("kind", ["deepseek_v2", "mamba", "bart", "falcon", "roberta", "llava"])
def test_a_folder_of_another_type_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"model type '{kind}' is refused: no test shows"):
        load_model(str(tmp_path), "target")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"model_type": "deepseek_mtp", "architectures": ["DeepSeekMTPModel"]}', r"multi-token prediction \(MTP\)"),
        ('{"model_type": "llama", "architectures": ["LlamaForCausalLMNextN"]}', r"multi-token prediction \(MTP\)"),
        ('{"model_type": "not_yet_invented"}', "not the configuration of a model that transformers knows"),
    ],
)
def test_multi_token_heads_and_unknown_types_are_refused_by_name(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=reason):
        config_of(tmp_path)


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantised (quantization_config: fp8)"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "look ahead"),
        ("minimax_m3_vl_text", {"layer_types": ["minimax_m3_sparse", "full_attention"]}, "minimax_m3_sparse"),
        ("granitemoehybrid", {"layer_types": ["linear_attention", "full_attention"]}, "linear_attention"),
    ],
)
def test_some_configurations_of_admitted_types_are_refused(kind: str, changes: dict[str, object], reason: str) -> None:
    config = tiny_config(kind)
    assert refusal(config) == ""
    for name, value in changes.items():
        setattr(config, name, value)
    assert reason in refusal(config)


def test_an_unknown_rotary_embedding_is_refused_with_the_known_ones() -> None:
    config = PretrainedConfig()
    config.model_type, config.rope_parameters = "llama", {"full_attention": {"rope_type": "novel"}}
    reason, _, kinds = refusal(config).partition("; the engine knows ")
    assert reason == "rotary embedding of type novel"
    assert kinds.split(", ") == ["default", "dynamic", "linear", "llama3", "longrope", "yarn"]
    for kind in kinds.split(", "):
        config.rope_parameters = {"full_attention": {"rope_type": kind}}
        assert refusal(config) == ""


@pytest.mark.parametrize(
    ("kind", "changes", "longest"),
    [
        ("phi3, longrope", {}, POSITIONS // 2),
        ("llama, dynamic rope", {}, POSITIONS),
        ("phimoe", {"sliding_window": 20}, 20),
        ("llama", {}, 0),
        ("mistral", {}, 0),
    ],
)
def test_rows_end_before_numbers_depend_on_the_batch(kind: str, changes: dict[str, object], longest: int) -> None:
    config = tiny_config(kind)
    for name, value in changes.items():
        setattr(config, name, value)
    assert longest_row(config) == longest
    if longest == 0:
        return
    model = CausalLM(network_of(config))
    cache = model.new_cache(1, longest + 1)
    cache.open(0)
    model.prefill(cache, 0, [5] * longest)
    with pytest.raises(InputError, match=f"a row of {longest + 1} tokens, and the model knows {longest} positions"):
        model.prefill(cache, 0, [5])


def test_the_page_names_all_admitted_types() -> None:
    runs = PAGE.read_text().partition("## Which models are estimated")[0].splitlines()
    named = {word for line in runs if line.startswith("|") for word in line.split("`")[1::2]}
    assert named == ADMITTED
