"""Files that only the engine reads: prompts, model folders, EAGLE heads, tokenizers; run in this process."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from specfleet.engine.launch.places import Place
from specfleet.engine.launch.serve import Launch
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.node import Site
from specfleet.engine.node.write_ahead_log import Served
from specfleet.fleet.errors import InputError
from tests.inputs.kinds import Kind
from tests.inputs.values import toml_of

WORDS = [f"w{number}" for number in range(40)]
RUN = ("run", "scenario.toml", "--json", "-o", "out.parquet")


def run_here(_launch: Launch, waves: Iterable[list[Place]]) -> Served:
    """Serve the one target in this process in place of another; errors are raised here."""
    place = next(iter(waves))[0]
    if place.name != "target 1":
        refuse_process(place.name)
    node = place.make(site=Site(life=place.life))
    node.open()
    return Served(list(node.serve(now_s())), node.outputs, node.signals)


def refuse_process(name: str, *_: Any, **__: Any) -> NoReturn:
    """Refuse to start a process."""
    raise InputError(f"{name} would be one process of several")


def engine(**tables: Any) -> Callable[[Path], None]:
    """Return the writer of a target that drafts itself, an untrained pair with a tokenizer, and prompts."""

    def write(folder: Path) -> None:
        import torch
        from tokenizers import Tokenizer, models, pre_tokenizers

        from tests.helpers.pairs import write_pair

        torch.set_num_threads(1)
        write_pair(folder)
        tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token=WORDS[0]))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        for role in ("target", "drafter"):
            tokenizer.save(str(folder / role / "tokenizer.json"))
            (folder / role / "tokenizer_config.json").write_text(
                json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": WORDS[0]})
            )
        lines: list[dict[str, Any]] = [
            {"prompt_ids": list(range(20))},
            {"prompt": " ".join(WORDS)},
            {"question_id": 3, "turns": [" ".join(reversed(WORDS)), "w1"]},
        ]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        load = {"requests": 4, "streams": 4, "prompts": "prompts.jsonl", "prompt_tokens": 12, "new_tokens": 10}
        content: dict[str, Any] = {
            "name": "engine",
            "precision": "float64",
            "drafters": {"model": "drafter", "depth": 3, "place": "target"},
            "verifiers": {"model": "target", "max_num_seqs": 2},
            "workload": load,
        }
        (folder / "scenario.toml").write_text(toml_of(content | tables))

    return write


STAND_INS = {
    "specfleet.engine.launch.serve.Launch.run": run_here,
    "specfleet.engine.launch.serve.NodeProcess": refuse_process,
}
EAGLE = {"kind": "eagle", "model": "head", "depth": 3, "place": "target"}


def kind(write: Callable[[Path], None], files: tuple[str, ...], form: str) -> Kind:
    """Return a kind that a run reads; its node is this process."""
    return Kind(write, files, form, (RUN,), stand_ins=STAND_INS)


ENGINE_KINDS: dict[str, Kind] = {
    "prompts": kind(engine(), ("prompts.jsonl",), "jsonl"),
    "target folder": kind(engine(), ("target/config.json", "target/model.safetensors"), "json"),
    "drafter folder": kind(engine(), ("drafter/config.json", "drafter/model.safetensors"), "json"),
    "tokenizer": kind(engine(), ("target/tokenizer.json", "target/tokenizer_config.json"), "json"),
    "EAGLE folder": kind(engine(drafters=EAGLE), ("head/config.json", "head/model.safetensors"), "json"),
    "scenario of the engine": kind(engine(), ("scenario.toml",), "toml"),
}
