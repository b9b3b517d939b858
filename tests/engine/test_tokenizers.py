"""Tokenizers are compared by content: files may differ, ids may not, and a missing one is an error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from specfleet.engine.decoding.shared_tokenizer import check_shared_tokenizer
from specfleet.engine.node.build import check_models
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve

TEXT = ["def add(one, two): return one + two", "for number in range(10): print(number)"]
Content = dict[str, Any]


def tokenizer() -> Content:
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=90, show_progress=False))
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    return json.loads(made.to_str())


def write(folder: Path, content: Content | None, rows: int = 128, **dump: Any) -> str:
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": rows, "hidden_size": 32, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    if content is not None:
        (folder / "tokenizer.json").write_text(json.dumps(content, **dump))
    return str(folder)


def as_pairs(content: Content) -> None:
    content["model"]["merges"] = [
        merge.split(" ") if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]
    ]


def turned_round(content: Content) -> None:
    content["model"]["vocab"] = dict(reversed(content["model"]["vocab"].items()))


def with_a_template(content: Content) -> None:
    content["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    content["truncation"] = {"max_length": 5, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}


@pytest.mark.parametrize("change", [as_pairs, turned_round, with_a_template])
def test_files_that_mean_the_same_ids_are_equal(tmp_path: Path, change: Callable[[Content], None]) -> None:
    """For any bytes, and any padding of the embeddings."""
    other = tokenizer()
    change(other)
    one = write(tmp_path / "drafter", tokenizer(), rows=151936, indent=2)
    check_shared_tokenizer(one, write(tmp_path / "target", other, rows=152064, ensure_ascii=False))


def swapped(vocabulary: dict[str, int]) -> None:
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def shortened(vocabulary: dict[str, int]) -> None:
    vocabulary.pop(max(vocabulary, key=lambda token: vocabulary[token]))


CHANGES: dict[str, tuple[Callable[[Content], object], str]] = {
    "swap ids": (lambda content: swapped(content["model"]["vocab"]), r"id \d+ is '[ab]' and '[ab]'"),
    "drop a token": (lambda content: shortened(content["model"]["vocab"]), r"id \d+ is .* and None"),
    "rename a special": (
        lambda content: content["added_tokens"][0].update(content="<|stop|>"), r"id \d+ is '<\|end\|>' and '<\|stop\|>'"
    ),
    "make a special plain": (
        lambda content: content["added_tokens"][0].update(special=False), r"id \d+ is a special token of one only"
    ),
    "merge in another order": (lambda content: content["model"]["merges"].reverse(), "their merges"),
    "normalise otherwise": (lambda content: content.update(normalizer={"type": "Lowercase"}), "their normalizer"),
    "split otherwise": (lambda content: content["pre_tokenizer"].update(add_prefix_space=True), "their pre_tokenizer"),
    "another model": (lambda content: content["model"].update(type="WordPiece"), "models of kind BPE and WordPiece"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_difference_of_ids_is_one_line(tmp_path: Path, name: str) -> None:
    change, message = CHANGES[name]
    other = tokenizer()
    change(other)
    with pytest.raises(InputError, match=rf"do not share a tokenizer: {message}"):
        check_shared_tokenizer(write(tmp_path / "one", tokenizer()), write(tmp_path / "other", other))


@pytest.mark.parametrize("lacking", ["drafter", "target"])
def test_a_missing_tokenizer_of_one_model_is_refused(tmp_path: Path, lacking: str) -> None:
    folders = [write(tmp_path / role, None if role == lacking else tokenizer()) for role in ("drafter", "target")]
    with pytest.raises(InputError, match=rf"{lacking} holds no tokenizer .* copy tokenizer\.json from .* into it"):
        check_shared_tokenizer(*folders)


def test_without_any_tokenizer_the_vocabularies_must_be_equally_long(tmp_path: Path) -> None:
    """Their prompts are ids then, with the user's meaning."""
    one, other = write(tmp_path / "one", None, rows=100), write(tmp_path / "other", None, rows=100)
    check_shared_tokenizer(one, other)
    with pytest.raises(InputError, match=r"vocabularies of 100 and 101 tokens, and no tokenizer\.json"):
        check_shared_tokenizer(one, write(tmp_path / "third", None, rows=101))


def test_a_broken_tokenizer_names_its_file(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", tokenizer()), write(tmp_path / "other", None)
    file, translated = tmp_path / "other" / "tokenizer.json", tmp_path / "other" / "tokenizer.model"
    for content, message in (
        (b"{", f"{file}: not JSON: "),
        (b"[]", f"{file}: no tokenizer; expected a table 'model'"),
        (b'{"model": 3}', f"{file}: no tokenizer; expected a table 'model'"),
        (b"\xff\xfe", f"{file}: "),
        (b"", f"{file.parent}: no tokenizer can be read from it"),
    ):
        file.write_bytes(content)
        if not content:
            file.rename(translated)
        with pytest.raises(InputError, match=f"^{message}"):
            check_shared_tokenizer(one, other)


def test_a_byte_order_mark_changes_no_tokenizer(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", tokenizer()), write(tmp_path / "other", tokenizer())
    file = tmp_path / "other" / "tokenizer.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    check_shared_tokenizer(one, other)


def test_an_unchecked_tokenizer_is_reported(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", tokenizer()), write(tmp_path / "other", None)

    def compare(drafter: str, target: str) -> list[str]:
        said, sides = list[str](), {"drafters": {"model": drafter}, "verifiers": {"model": target}}
        check_models(resolve(make_scenario(sides)), said.append)
        return said

    assert compare(one, one) == []
    (message,) = compare(one, "elsewhere")
    assert message == (
        "note: verifiers.model = 'elsewhere' is not on this host; whether its tokenizer is shared is not checked"
    )
    with pytest.raises(InputError, match="holds no tokenizer"):
        compare(one, other)
