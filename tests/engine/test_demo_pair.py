"""The committed demo pair: its weights are the recorded ones, its prompts are held out."""

import hashlib
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specfleet.engine.decoding.shared_tokenizer import check_shared_tokenizer
from specfleet.engine.demo_pair.corpus import FOLDER, read_prompts
from specfleet.engine.node.prompts import demo_prompts
from specfleet.fleet.errors import InputError
from tools.demo_pair.train import split_of

TRAINING = json.loads((FOLDER / "training.json").read_text())


@pytest.mark.parametrize("role", ["target", "drafter", "eagle", "block"])
def test_the_weights_are_those_that_training_wrote(role: str) -> None:
    weights, record = (FOLDER / role / "model.safetensors").read_bytes(), FOLDER / role / "training.json"
    written = json.loads(record.read_text())["sha256"] if record.is_file() else TRAINING["sha256"][role]
    assert hashlib.sha256(weights).hexdigest() == written


def test_the_pair_shares_its_tokenizer() -> None:
    check_shared_tokenizer("demo", "demo")


def test_prompts_come_from_held_out_files_only() -> None:
    for group in ("calibration", "evaluation"):
        for prompt in json.loads((FOLDER / "prompts" / f"{group}.json").read_text()):
            assert split_of(prompt["file"]) == "held-out"


def test_no_prompt_comes_twice_nor_in_both_groups() -> None:
    calibration, evaluation = (list(map(tuple, read_prompts(group))) for group in ("calibration", "evaluation"))
    assert len(calibration) == len(evaluation) >= 100
    assert len({*calibration, *evaluation}) == len(calibration) + len(evaluation)


def test_another_tokenizer_reads_the_demo_prompts_as_text(tmp_path: Path) -> None:
    own = Tokenizer.from_file(str(FOLDER / "target" / "tokenizer.json"))
    letters = Tokenizer(models.BPE({letter: n for n, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(tmp_path / "letters")
    for name, rows in (("letters", 256), ("without", 512), ("few", 40)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(f'{{"model_type": "llama", "vocab_size": {rows}}}')
    prompts = read_prompts("evaluation")
    assert demo_prompts("evaluation", tmp_path / "without") == demo_prompts("evaluation", FOLDER / "target") == prompts
    with pytest.raises(InputError, match=r"demo/evaluation': token .*; allowed: 0 to 39, the vocabulary of the model"):
        demo_prompts("evaluation", tmp_path / "few")
    read = demo_prompts("evaluation", tmp_path / "letters")
    assert read != prompts
    assert [letters.decode(prompt) for prompt in read[:20]] == [own.decode(prompt) for prompt in prompts[:20]]
    (tmp_path / "letters" / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="letters: no tokenizer can be read from it"):
        demo_prompts("evaluation", tmp_path / "letters")
