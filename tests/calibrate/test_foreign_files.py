"""A file of another tool is named as such, wherever a reader meets it."""

import gzip
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import specfleet
from specfleet.calibration.readers.importing import READERS
from specfleet.calibration.readers.signatures import signature_of, signatures
from specfleet.fleet.errors import InputError
from tests.calibrate.test_damaged import AFTER, DATA, LOG
from tests.helpers.cli import Say
from tests.helpers.loads import aiperf_text, bench_text, log_text, served, sglang_bench_text, sglang_log_text
from tests.helpers.readings import LLAMA_CPP, write

FOREIGN: list[dict[str, str]] = tomllib.loads((DATA / "foreign.toml").read_text())["file"]
KNOWN = served(12)
OURS = {
    "vllm-metrics": AFTER,
    "vllm-log": log_text([3, 4, 4]),
    "vllm-bench": bench_text(KNOWN),
    "llama-cpp": (DATA / "llama-cpp.jsonl").read_text(),
    "llama-cpp-log": LOG,
    "llama-cpp-metrics": LLAMA_CPP,
    "sglang-log": sglang_log_text([3, 4, 4]),
    "sglang-bench": sglang_bench_text(KNOWN, request_rate=2.5, max_concurrency=None),
    "aiperf": aiperf_text(KNOWN),
    "guidellm": (DATA / "guidellm.json").read_text(),
    "inference-perf": (DATA / "inference-perf.json").read_text(),
}
PACKED: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "gzip": ("a gzip archive", lambda path: path.write_bytes(gzip.compress(LOG.encode()))),
    "zip": ("a zip archive", lambda path: zipfile.ZipFile(path, "w").writestr("a.log", LOG)),
    "Parquet": ("a Parquet file", lambda path: pd.DataFrame({"a": [1]}).to_parquet(path)),
    "SQLite": ("an SQLite database", lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(84))),
}


def refused(kind: str, path: Path) -> str:
    """Return the line with which an import refuses a file."""
    with pytest.raises(InputError) as raised:
        specfleet.import_record(kind, path, path.with_name("made.toml"), draft_ms=1, verify_ms=2)
    return str(raised.value)


@pytest.mark.parametrize("file", FOREIGN, ids=lambda file: str(file["name"]))
@pytest.mark.parametrize("kind", ["vllm", "vllm-metrics", "sglang-log", "vllm-bench", "guidellm"])
def test_a_file_of_another_tool_is_named(tmp_path: Path, kind: str, file: dict[str, str]) -> None:
    path = write(tmp_path / file["name"], file["content"])
    found = signature_of(path)
    assert found is not None
    if found.kind != kind:
        assert refused(kind, path).startswith(f"{path}: this is {file['says']}")


@pytest.mark.parametrize("name", PACKED)
def test_an_archive_is_named(tmp_path: Path, name: str) -> None:
    says, make = PACKED[name]
    make(tmp_path / "a.bin")
    assert f"this is {says}" in refused("vllm-log", tmp_path / "a.bin")


@pytest.mark.parametrize("kind", OURS)
def test_each_file_that_is_read_knows_its_import(tmp_path: Path, kind: str) -> None:
    found = signature_of(write(tmp_path / "a.txt", OURS[kind]))
    assert found is not None
    assert found.kind == kind
    other = "vllm-log" if kind != "vllm-log" else "sglang-log"
    assert f"this is {found.what}; use `specfleet import {kind}`" in refused(other, tmp_path / "a.txt")


def test_every_signature_says_what_to_do() -> None:
    for one in signatures():
        assert bool(one.do) != bool(one.kind), one.what
        assert [bool(one.begins), bool(one.text), bool(one.keys)].count(True) == 1, one.what
        assert one.kind in ("", *READERS)


def test_a_comparison_names_a_foreign_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", FOREIGN[3]["content"])
    with pytest.raises(InputError, match="this is llama-bench's JSON"):
        specfleet.compare(specfleet.simulate("star", workload={"requests": 8}), path)


@pytest.mark.parametrize("words", [("simulate",), ("simulate", "--of"), ("report", "-o", "a.html"), ("compare",)])
@pytest.mark.parametrize("kind", ["vllm-log", "guidellm"])
def test_commands_for_our_files_name_the_import(tmp_path: Path, say: Say, kind: str, words: tuple[str, ...]) -> None:
    path = write(tmp_path / "a.json", OURS[kind])
    said = say(*words, path, *([path] if words == ("compare",) else []))
    found = signature_of(path)
    assert found is not None
    assert (said.status, said.err) == (2, f"specfleet: {path}: this is {found.what}; use `specfleet import {kind}`\n")
