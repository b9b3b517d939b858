"""Prompts as token ids: the demo pair's committed ones, or a JSON Lines file of the user.

Requests share what their identities say (`fleet/policies/blocks.py`), in both worlds: a source stands for a stretch of
the prompts' own texts, side by side, so that equal sources are equal tokens. A prefix cache therefore finds the same in
both worlds. vLLM compares tokens, so it may also find what is equal by chance, which no identity says.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specfleet.engine.decoding.folders import folder_of, read_tokenizer, read_vocabulary
from specfleet.engine.demo_pair.corpus import FOLDER, read_prompts
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import parse_json, read_lines
from specfleet.fleet.policies.blocks import Identity
from specfleet.fleet.scenario.arrivals import Trace
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.named_files import DEMO_PROMPTS
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of

OWN_TOKENIZER = FOLDER / "target" / "tokenizer.json"
APART = 257  # tokens between the places of sources: about a prompt of the demo

Text = Annotated[str, Meta(min_length=1)]
TokenId = Annotated[int, Meta(ge=0)]


class PromptLine(msgspec.Struct, frozen=True):
    """A line of a file of prompts: token ids, a text, or turns as in Spec-Bench's files, of which the first counts.

    Other fields are ignored.
    """

    prompt_ids: Annotated[list[TokenId], Meta(min_length=1)] | None = None
    prompt: Text | None = None
    turns: list[Text] = []


def targets_of(fleet: Fleet, targets: Sequence[int] | None = None) -> dict[int, int]:
    """Return the target of each request; `targets`: of their requests alone."""
    dealt = ((fleet.target_of(tag), requests) for tag, requests in streams_of(fleet).items())
    of_these = ((target, requests) for target, requests in dealt if targets is None or target in targets)
    return {request.number: target for target, requests in of_these for request in requests}


def prompts_of(fleet: Fleet, targets: Sequence[int] | None = None) -> list[list[int]]:
    """Return the token ids of each request's prompt; of a later turn of a conversation, those after the text so far.

    Longer prompts are cut; if there are fewer than requests, they repeat. `targets`: only their requests have prompts;
    models of others may be on other hosts. InputError if a file cannot be read or no prompt is long enough.
    """
    every = list(_asked(fleet))
    asked = [part for part in every if targets is None or part[0] in targets]
    models = {target: fleet.target_model(target) for target, _, _ in asked}
    most, prompts = _longest_prompt(fleet, every), [list[int]()] * fleet.workload.requests
    read = {model: _prompts_for(fleet, model, most) for model in dict.fromkeys(models.values())}
    for target, request, own in asked:
        long_enough, whole = read[models[target]]
        its_own = long_enough[request.number % len(long_enough)][:own]
        prompts[request.number] = [*_beginning(request.identity, whole), *its_own]
    return prompts


def with_identities(fleet: Fleet) -> Fleet:
    """Return a fleet whose requests say what they share, also where no cache finds it."""
    if not (fleet.workload.shared or fleet.workload.conversations):  # else those of a trace, where a cache reads them
        return fleet
    return msgspec.structs.replace(fleet, verifiers=msgspec.structs.replace(fleet.verifiers, prefix_cache=True))


def goes_on(identity: Identity) -> bool:
    """Return whether a request with this identity is a later turn of a conversation."""
    return any(source < 0 for source in identity[::2])


def _asked(fleet: Fleet) -> Iterator[tuple[int, Request, int]]:
    """Yield the target of each request, the request with its identity, and the tokens of its own in its prompt, after
    what this run has said so far."""
    for tag, requests in streams_of(with_identities(fleet)).items():
        target, text = fleet.target_of(tag), 0
        for request in requests:
            before = text if goes_on(request.identity) else max(request.identity[1::2], default=0)
            yield target, request, request.prompt_tokens - before
            text = request.prompt_tokens + request.new_tokens


def _beginning(shared: Identity, whole: NDArray[np.int64]) -> list[int]:
    """Return the tokens that a first prompt shares: each source has a place in the texts, from which it is read."""
    begins, tokens = (0, *shared[1::2]), list[int]()
    for source, begin, end in zip(shared[::2], begins, shared[1::2], strict=False) if not goes_on(shared) else ():
        tokens += whole.take(np.arange(begin, end) + source % len(whole) * APART, mode="wrap").tolist()
    return tokens


def _prompts_for(fleet: Fleet, model: str, most: int) -> tuple[list[list[int]], NDArray[np.int64]]:
    """Return all prompts that are long enough, cut, in the tokens of one target's model; and all texts side by side."""
    source, folder = fleet.workload.prompts, folder_of(model, "target")
    if source in DEMO_PROMPTS:
        group: Literal["calibration", "evaluation"] = "calibration" if source.endswith("calibration") else "evaluation"
        prompts = demo_prompts(group, folder)
    else:
        prompts = _read_lines(Path(source), folder)
    long_enough = [prompt[:most] for prompt in prompts if len(prompt) >= most]
    if not long_enough:
        longest = max(map(len, prompts), default=0)
        raise InputError(
            f"workload.prompt_tokens = {most}: no prompt of {source} is that long; allowed: up to {longest}"
        )
    return long_enough, np.concatenate([np.array(prompt, dtype=np.int64) for prompt in prompts])


def _longest_prompt(fleet: Fleet, asked: Sequence[tuple[int, Request, int]]) -> int:
    """Tokens of the longest prompt, without what it shares."""
    workload, wanted = fleet.workload, fleet.workload.prompt_tokens
    drawn = isinstance(wanted, Between) and wanted.mean is not None  # its maximum is rare
    if drawn or workload.lengths or isinstance(workload.arrivals, Trace):  # lengths are in a file
        return max((own for *_, own in asked), default=0)
    return wanted if isinstance(wanted, int) else wanted.high


def _read_lines(path: Path, folder: Path) -> list[list[int]]:
    """Read a file of prompts for the model in `folder`."""
    vocabulary, tokenizer, prompts = read_vocabulary(folder), None, []
    for number, content in read_lines(path, "workload.prompts"):
        origin = f"workload.prompts {path}, line {number}"
        line = _read_line(content, origin)
        if line.prompt_ids is not None:
            prompt = list(line.prompt_ids)
        else:
            tokenizer = tokenizer or read_tokenizer(folder)
            prompt = tokenizer.encode(line.turns[0] if line.prompt is None else line.prompt)
        _check_ids(prompt, vocabulary, origin, folder)
        prompts.append(prompt)
    return prompts


def _read_line(content: str, origin: str) -> PromptLine:
    try:
        line = convert(parse_json(content, origin), PromptLine, origin)
        if line.prompt is None and line.prompt_ids is None and not line.turns:
            raise InputError(f"{origin}: has no prompt")
        return line
    except InputError as error:
        raise InputError(f'{error}; write {{"prompt": "TEXT"}} or {{"prompt_ids": [1, 2]}} in each line') from error


def _check_ids(prompt: list[int], vocabulary: int, origin: str, folder: Path) -> None:
    largest = max(prompt, default=0)
    if largest >= vocabulary:
        raise InputError(
            f"{origin}: token {largest}; allowed: 0 to {vocabulary - 1}, the vocabulary of the model in {folder}"
        )


def demo_prompts(group: Literal["calibration", "evaluation"], folder: Path) -> list[list[int]]:
    """Return the demo's prompts of a group for the model in `folder`.

    They are token ids of the demo pair, or their text in the tokens of another tokenizer, if the folder has one.
    """
    prompts = read_prompts(group)
    files = [*folder.glob("tokenizer*"), *folder.glob("vocab*"), *folder.glob("*.model")]
    fast = folder / "tokenizer.json"
    if files and not (fast.is_file() and fast.read_bytes() == OWN_TOKENIZER.read_bytes()):
        from tokenizers import Tokenizer

        demo, tokenizer = Tokenizer.from_file(str(OWN_TOKENIZER)), read_tokenizer(folder)
        prompts = [tokenizer.encode(demo.decode(prompt)) for prompt in prompts]
    vocabulary = read_vocabulary(folder)
    for prompt in prompts:
        _check_ids(prompt, vocabulary, f"workload.prompts = 'demo/{group}'", folder)
    return prompts
