"""Prompts as token ids: the demo pair's committed ones, or a JSON Lines file of the user."""

import json
from pathlib import Path
from typing import Literal

from transformers import AutoTokenizer

from engine.decoding.models import folder_of
from engine.runtime.demo_prompts import demo_prompts
from fleet.errors import InputError
from fleet.scenario.settled import Fleet


def prompts_of(fleet: Fleet) -> list[list[int]]:
    """Return one prompt of (at most, where lengths differ) `workload.prompt_tokens` token ids for each request.

    Prompts longer than that are cut; if there are fewer than requests, they repeat. Raises InputError if a file cannot
    be read or no prompt is long enough.
    """
    workload = fleet.workload
    source, asked = workload.prompts, workload.prompt_tokens
    most = asked if isinstance(asked, int) else asked.high
    if source in ("demo/evaluation", "demo/calibration"):
        group: Literal["calibration", "evaluation"] = "calibration" if source.endswith("calibration") else "evaluation"
        prompts = demo_prompts(group, folder_of(fleet.verifiers.model, "target"))
    else:
        prompts = _read_lines(Path(source), fleet.verifiers.model)
    long_enough = [prompt[:most] for prompt in prompts if len(prompt) >= most]
    if not long_enough:
        longest = max(map(len, prompts), default=0)
        raise InputError(
            f"workload.prompt_tokens = {most}: no prompt of {source} is that long; allowed: up to {longest}"
        )
    return [long_enough[number % len(long_enough)] for number in range(workload.requests)]


def _read_lines(path: Path, model: str) -> list[list[int]]:
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"workload.prompts = {str(path)!r}: cannot be read ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise InputError(f"workload.prompts = {str(path)!r}: not JSON Lines ({error})") from error
    tokenizer = None
    prompts = []
    for number, line in enumerate(lines, start=1):
        # `turns` is the field of Spec-Bench's question files; the first turn is the prompt.
        text = line.get("prompt") or (line.get("turns") or [None])[0]
        if "prompt_ids" in line:
            prompts.append([int(token) for token in line["prompt_ids"]])
        elif text is not None:
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(folder_of(model, "target"), local_files_only=True)
            prompts.append(tokenizer.encode(text))
        else:
            raise InputError(f"{path}, line {number}: needs a field prompt_ids, prompt or turns, has {sorted(line)}")
    return prompts
