"""Shipped profiles load, and every number in them has a source or the word "assumed"."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.times.describe import describe
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.profile import read_profile, write_profile

NAMES = sorted(shipped_files("profiles"))


def numbers(content: Any, path: str = "") -> Iterator[str]:
    """Paths of all numbers: those of a list share the path of the list."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from numbers(value, f"{path}.{key}" if path else key)
    elif isinstance(content, list):
        if any(isinstance(value, int | float) for value in content):
            yield path
    elif isinstance(content, int | float):
        yield path


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_shipped_profile_has_a_source(name: str) -> None:
    content = msgspec.json.decode(shipped_files("profiles")[name].read_bytes())
    sources = content.pop("sources")
    assert set(numbers(content)) == set(sources)
    assert all(text.strip() for text in sources.values())


@pytest.mark.parametrize("name", [*NAMES, "llama-3.1-8b@h100"])
def test_a_profile_survives_its_file(name: str, tmp_path: Path) -> None:
    profile = read_profile(name, Path()) if name in NAMES else estimate(name)
    write_profile(profile, tmp_path / "copy.json")
    copy = read_profile("copy.json", tmp_path)
    assert copy == profile
    assert copy.digest() == profile.digest()
    assert list(describe(copy))


def test_a_missing_profile_is_named_with_the_shipped_ones() -> None:
    with pytest.raises(InputError, match=r"no file 'h100'.*a100, jetson-orin, rtx-4090"):
        read_profile("h100", Path())


def test_idle_effect_is_flat_rising_flat() -> None:
    effect = IdleEffect(gaps_s=(0.01, 0.03), slowdowns=(1.0, 2.0), recoveries=(1.0, 0.5))
    assert [effect.slowdown(gap_s) for gap_s in (0.0, 0.01, 0.02, 0.03, 1.0)] == pytest.approx([1, 1, 1.5, 2, 2])
    assert effect.slowdown(1.0, warm_tokens=1) == pytest.approx(1.5)
    assert effect.slowdown(1.0, warm_tokens=9) == pytest.approx(1.5)
