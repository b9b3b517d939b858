"""The committed prompts of the demo pair, as token ids; `tools/demo_pair/` trains the pair."""

import json
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent


def read_prompts(group: Literal["calibration", "evaluation"]) -> list[list[int]]:
    """Return the prompts of a group as token ids, each at its full length."""
    content = json.loads((FOLDER / "prompts" / f"{group}.json").read_text())
    return [prompt["prompt_ids"] for prompt in content]
