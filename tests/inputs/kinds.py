"""The kinds of files that we read: a good one of each, and the commands that read it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from tests.inputs.good_files import (
    write_amusd,
    write_estimate,
    write_estimated,
    write_length_files,
    write_run_files,
    write_signal_files,
    write_sweep,
)
from tests.inputs.scenarios import SCENARIOS, scenario

SIMULATE = ("simulate", "scenario.toml", "--json", "-o", "out.parquet")


class Kind(NamedTuple):
    """A kind of files: the writer of good ones, the damaged names, their form, and their reader.

    `stand_ins`: replacements of slow functions, by dotted name; see `standing_in`.
    """

    write: Callable[[Path], None]
    files: tuple[str, ...]
    form: str
    commands: tuple[tuple[str, ...], ...]
    statuses: tuple[int, ...] = (0,)
    stand_ins: Mapping[str, Any] = {}


@contextmanager
def standing_in(kind: Kind) -> Iterator[None]:
    """Install a kind's stand-ins, and restore the originals afterwards."""
    with ExitStack() as places:
        for name, stand_in in kind.stand_ins.items():
            places.enter_context(mock.patch(name, stand_in))
        yield


KINDS: dict[str, Kind] = {
    **{
        f"scenario ({name})": Kind(
            scenario(name), ("scenario.toml",), "toml", (SIMULATE, SIMULATE, ("show", "scenario.toml", "--json"))
        )
        for name in SCENARIOS
    },
    "scenario for equations": Kind(
        scenario("batched", drafters={"depth": 4}, devices={}, verifiers={"count": 2}), ("scenario.toml",), "toml",
        (("analytic", "scenario.toml", "--json"),),
    ),
    "profile": Kind(scenario("star", profile="profile.json"), ("profile.json",), "json", (SIMULATE,)),
    "estimate": Kind(
        write_estimate, ("config.json",), "json", (("profile", "estimate", "--target", "config.json@h100", "--json"),)
    ),
    "device": Kind(
        write_estimate, ("device.toml",), "toml",
        (("profile", "estimate", "--target", "llama-3.1-8b@device.toml", "--json"),),
    ),
    "estimated profile": Kind(write_estimated, ("estimated.json",), "json", (SIMULATE,)),
    "run": Kind(
        write_run_files, ("run.parquet",), "parquet",
        (
            ("compare", "run.parquet", "other.parquet", "--json"),
            ("figure", "timeline", "run.parquet", "-o", "x.png"),
        ),
    ),
    "signals": Kind(write_signal_files, ("signals.parquet",), "parquet", (SIMULATE,)),
    "lengths": Kind(write_length_files, ("lengths.csv",), "csv", (SIMULATE,)),
    "trace": Kind(
        scenario("routed", workload={"requests": 6, "arrivals": {"process": "trace", "file": "trace.csv"}}),
        ("trace.csv",), "csv", (SIMULATE,),
    ),
    "cell of a sweep": Kind(
        write_sweep, ("swept/cells/verifiers.count=1.json",), "json",
        (("sweep", "scenario.toml", "-o", "swept", "--vary", "verifiers.count=1,2", "--seeds", "1", "--jobs", "1"),),
    ),
    "record of a sweep": Kind(
        write_sweep, ("swept/sweep.json",), "json", (("figure", "sweep", "swept", "-o", "x.png"),)
    ),
    "values of --set": Kind(
        scenario("star"), (), "command line", (("simulate", "scenario.toml", "--json", "--set", "KEY=VALUE"),)
    ),
    "values of --vary": Kind(
        scenario("ahead"), (), "command line",
        (("sweep", "scenario.toml", "-o", "swept", "--seeds", "1", "--jobs", "1", "--vary", "KEY=VALUES"),), (0, 1),
    ),
    "other options": Kind(
        write_run_files, (), "command line",
        (
            ("compare", "run.parquet", "other.parquet", "--json", "--tolerance", "VALUE"),
            ("sweep", "scenario.toml", "-o", "swept", "--vary", "verifiers.count=1", "--jobs", "1", "--seeds", "VALUE"),
            ("figure", "VALUE", "run.parquet", "-o", "x.png"),
            ("figure", "timeline", "VALUE", "-o", "x.png"),
            ("show", "VALUE", "--json"),
            ("reproduce", "VALUE", "--json"),
            ("reproduce", "amusd-a100", "--trace", "VALUE"),
            ("profile", "estimate", "--target", "VALUE", "--json"),
            ("profile", "estimate", "--target", "llama-3.1-8b@h100", "--draft", "VALUE", "--json"),
            ("profile", "estimate", "--target", "llama-3.1-8b@h100", "--engine", "VALUE", "--json"),
            ("explain", "VALUE"),
            ("export", "VALUE", "--json"),
            ("import", "VALUE", "run.parquet", "-o", "made.toml", "--json"),
            ("import", "vllm", "VALUE", "-o", "made.toml", "--json"),
            ("import", "vllm-log", "nowhere", "-o", "made.toml", "--draft-ms", "VALUE", "--verify-ms", "VALUE"),
            ("init", "VALUE"),
        ),
        (0, 1),
    ),
    "AMUSD run": Kind(
        write_amusd, ("runs.json",), "json",
        (("reproduce", "amusd-a100", "--trace", "runs.json", "--json"),),
        stand_ins={"specfleet.experiments.reproduce.amusd.SEEDS": 2},
    ),
}  # fmt: skip
