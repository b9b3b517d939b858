"""Mutations of what is typed behind a command: values of --set and --vary, and of other options."""

import random
import re

from tests.inputs.scenarios import SCENARIOS
from tests.inputs.values import NAMES, NUMBERS, TEXTS, Steps, places

RANGES = (
    "1:4", "1:4:0", "4:1", "4:1:-1", "1:4:-1", "0:2", "-3:-1", "1:1000000000", "1:4:9", "1:", ":", "::", "1:2:3:4",
    "1.5:3", "a:b", "1:2,5", "1ms:5ms", "1,2", "1,,2", ",", "[1,2],[3]", "{low = 1, high = 2}", "{", "[", "\"a",

    "1e9:1e10", "9" * 30 + ":" + "9" * 31,
)  # fmt: skip
KEYS = (
    "", ".", "a..b", "drafters", "drafters.depth.x", "seed.x", "profile", "workload.", "é", " seed",
    "devices.gpu.sharing", "x=y",
)  # fmt: skip


def typed(command: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
    """Return a command with a value in the place of VALUE, or with KEY=VALUE and KEY=VALUES put in."""
    named = [way for content in SCENARIOS.values() for way in places(content)]
    made = {"KEY": rng.choice([dotted(rng.choice(named)), dotted(rng.choice(named)), rng.choice(KEYS)])}
    made["VALUES"] = rng.choice([rng.choice(RANGES), value_of(rng)])
    made["VALUE"] = value_of(rng)
    return tuple(re.sub("KEY|VALUES?", lambda name: made[name[0]], argument) for argument in command)


def dotted(way: Steps) -> str:
    return ".".join(str(step) for step in way if isinstance(step, str))


def value_of(rng: random.Random) -> str:
    text = rng.choice(
        [str(rng.choice(NUMBERS[:-4])), rng.choice(TEXTS), rng.choice(NAMES), str(rng.choice([1, 2, 3, 0.5]))]
    )
    return text.replace("\0", "0")  # the operating system ends arguments there
