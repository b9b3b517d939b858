"""Places of models: by name or file, and what cannot be placed is refused in one line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.configs import shape_of_config
from specfleet.fleet.hardware.passes import roofline_of
from specfleet.fleet.hardware.profile import devices_in, estimated_profile, placed_of
from specfleet.fleet.hardware.shipped import device_of, shape_of
from specfleet.fleet.times.labels import EFFICIENCIES, label_of

CONFIG: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 80, "vocab_size": 96,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("llama-3.1-8b", "needs MODEL@DEVICE"),
        ("@h100", "needs MODEL@DEVICE"),
        ("llama-9@h100", "model 'llama-9': does not ship, .*nearest: llama-3-8b, llama-2-7b, .*--list models"),
        ("llama-3.1-8b@b100", "device 'b100': does not ship, .*nearest: h100, b300, b200; .*--list devices"),
        ("llama-3.1-8b@a100-80gb:fp8", "precision fp8: .*A100.*allowed: bf16, fp16, int8, int4"),
        ("llama-3.1-8b@h100:fp3", "precision fp3: .*allowed: bf16"),
        ("llama-3.1-8b@h100:kv-fp4", "KV cache kv-fp4: not known; allowed: kv-bf16, kv-fp8"),
        ("llama-3.1-8b@h100:fp8:bf16", "needs one precision of weights, and one of the KV cache"),
        ("llama-3.1-8b@3xh100", "tensor parallel 3: the 32 heads.*allowed: 1, 2, 4, 8, 16, 32"),
        ("llama-3.1-8b@0xh100", "tensor parallel 0"),
        ("llama-3.1-70b@h100", "weights of 141.1 GB; 1 x NVIDIA H100.* has 85.5 GB; needs 2 of them"),
        ("eagle3-llama-3.1-8b@h100", "a head only drafts"),
        ("llama-3.2-1b@h100 eagle3-llama-3.1-8b@h100", "a head for hidden size 4096"),
    ],
)
def test_what_cannot_be_placed_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        estimated_profile(*map(placed_of, text.split()))


def test_a_model_is_a_config_json_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    assert shape_of(str(folder)) == shape_of(str(folder / "config.json"))
    assert shape_of(str(folder)).name == "tiny"
    seeing = {
        "model_type": "gemma3",
        "text_config": {**CONFIG, "model_type": "gemma3_text", "tie_word_embeddings": True},
    }
    (folder / "config.json").write_text(json.dumps(seeing))
    assert shape_of(str(folder)).norms == 4


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"model_type": "mamba"}, "model_type = 'mamba' is not known; allowed: llama, mistral"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"intermediate_size": "wide"}, "intermediate_size = 'wide'"),
        ({"num_key_value_heads": 4}, "num_attention_heads = 6 is no multiple of 4"),
        ({"head_dim": True}, "head_dim = True"),
    ],
)
def test_unknown_configs_are_refused_in_one_line(change: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=f"^here: {re.escape(line)}"):
        shape_of_config("tiny", CONFIG | change, "here")
    with pytest.raises(InputError, match="needs the table of a config"):
        shape_of_config("tiny", [CONFIG], "here")


def test_a_devices_name_may_have_any_case() -> None:
    assert placed_of("llama-3.1-8b@2xH100") == placed_of("llama-3.1-8b@2xh100")
    assert devices_in("a@RTX-4090:fp8") == ("rtx-4090", 1)
    assert devices_in("a@4xMi300X") == ("mi300x", 4)
    assert devices_in("a@Mine.toml") == ("Mine.toml", 1)


def test_a_data_sheet_alone_makes_a_device(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('title = "Mine"\nmemory_bytes = 96e9\nbandwidth_bytes_per_s = 4e12\ncompute.bf16 = 5e14')
    made, h100 = device_of(str(mine)), device_of("h100")
    for name in EFFICIENCIES:
        assert getattr(made, name).value == getattr(h100, name).value
        assert label_of(getattr(made, name).source) == "assumed"
    assert label_of(made.memory_bytes.source) == label_of(made.compute["bf16"].source) == "stated"
    mine.write_text('title = "Mine"')
    with pytest.raises(InputError, match="needs the keys `memory_bytes`, `bandwidth_bytes_per_s`, `compute`"):
        device_of(str(mine))


def test_a_device_may_be_a_file_of_the_users(tmp_path: Path) -> None:
    text = shipped_files("devices")["h100"].read_text()
    (tmp_path / "mine.toml").write_text(text.replace("3.35e12", "6.7e12"))
    mine = placed_of(f"llama-3.1-8b@{tmp_path / 'mine.toml'}")
    assert roofline_of(mine).mean_s(1) < roofline_of(placed_of("llama-3.1-8b@h100")).mean_s(1)
    for found, made in (("stated: NVIDIA H100 data sheet", "somewhere"), ("value = 0.903", "value = 1.5")):
        (tmp_path / "mine.toml").write_text(text.replace(found, made, 1))
        with pytest.raises(InputError, match="device "):
            device_of(str(tmp_path / "mine.toml"))
