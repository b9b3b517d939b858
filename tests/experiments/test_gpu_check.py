"""The check of a GPU machine: it says plainly when there is no GPU, goes on where it stopped, and needs little."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from experiments.gpu_check import parts, suite
from experiments.gpu_check.command import NO_DEVICE, main
from experiments.gpu_check.place import Place
from tests.helpers.marks import slow

TINY = ["--device", "cpu", "--tiny"]
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a cuda device")
@pytest.mark.parametrize("part", [[], ["--part", "laws"]], ids=str)
def test_without_a_cuda_device_nothing_is_checked(
    part: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*part, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"gpu-check: {NO_DEVICE}\n"
    assert not list(tmp_path.iterdir())


def test_the_parts_are_listed_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(parts.PARTS)


def test_the_tests_that_the_check_runs_are_there() -> None:
    """A check leaves out what is missing where it runs; in the tree itself nothing is."""
    assert [name for name in suite.FILES if not (ROOT / name).is_file()] == []


def test_a_cpu_is_only_good_for_testing_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu"])
    assert ended.value.code == 2
    assert "what it measures is no result" in capsys.readouterr().err


@pytest.mark.parametrize("part", [slow("laws"), "benchmark", "steps-demo", "steps-7b-eagle", "steps-7b-1b"])
def test_a_part_writes_its_result_and_is_not_done_twice(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*TINY, "--out", str(tmp_path), "--part", part]
    assert main(command) == 0
    file = tmp_path / "parts" / f"{part}.json"
    result, written = json.loads(file.read_text()), file.stat().st_mtime_ns
    assert result["facts"]["device"] == "cpu"
    assert result["facts"]["tiny"] is True
    assert main(command) == 0
    assert file.stat().st_mtime_ns == written
    assert f"{part}: done before" in capsys.readouterr().err
    merged = json.loads((tmp_path / "check.json").read_text())
    assert (merged["device"], merged["tiny"]) == ("cpu", True)
    assert merged["host"]["torch"] == str(torch.__version__)
    assert list(merged["parts"]) == [part]
    assert merged["parts"][part] == result
    assert set(merged["missing"]) == set(parts.PARTS) - {part}
    if part == "laws":
        judged = [row for row in result["rows"] if row["holds"] is not None]
        assert len(judged) > 20
        assert all(row["holds"] for row in judged)


def test_interrupted_checks_go_on_and_a_broken_part_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def breaks(_: Place) -> parts.Result:
        calls.append("breaks")
        raise RuntimeError("a cable")

    def works(_: Place) -> parts.Result:
        calls.append("works")
        return {"holds": len(calls) > 3}

    monkeypatch.setattr(parts, "PARTS", {"one": parts.Part("breaks", breaks), "two": parts.Part("works", works)})
    place, folder = Place(torch.device("cpu"), True), parts.Folder(tmp_path)
    assert not parts.run_part("one", folder, place, False)
    assert "broke off: a cable" in capsys.readouterr().err
    assert "a cable" in json.loads(folder.file("one").read_text())["error"]
    assert not parts.run_part("one", folder, place, False)
    assert not parts.run_part("two", folder, place, False)
    assert not parts.run_part("two", folder, place, False)  # done, and still not well
    assert calls == ["breaks", "breaks", "works"]
    assert parts.run_part("two", folder, place, True)
    assert not folder.merge(place)
    assert folder.read("two", Place(torch.device("cpu"), False)) is None  # what was made elsewhere is missing here


def test_what_does_not_fit_into_the_devices_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(_: Place) -> parts.Result:
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(parts, "PARTS", {"one": parts.Part("large", too_large)})
    place, folder = Place(torch.device("cpu"), True), parts.Folder(tmp_path)
    assert parts.run_part("one", folder, place, False)
    assert folder.merge(place)
    assert json.loads((tmp_path / "check.json").read_text())["parts"]["one"]["result"] == "skipped: too large"


@pytest.mark.slow
def test_it_runs_where_nothing_but_torch_and_transformers_is_installed(tmp_path: Path) -> None:
    """In a process that finds no other package of ours; transformers asks for some of its own."""
    absent = ["msgspec", "rich", "typer", "simpy", "joblib", "matplotlib", "zmq", "hypothesis"]
    program = f"""
import sys
sys.modules.update(dict.fromkeys({absent}))
from experiments.gpu_check.command import main
status = main({[*TINY, "--out", str(tmp_path), "--part", "laws"]})
ours = sorted(name for name, module in sys.modules.items() if module and name.startswith("fleet."))
print(status, ours)
"""
    env = os.environ | {"OMP_NUM_THREADS": "1"}  # as here
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    light = [
        "fleet.chance",
        "fleet.chance.token",
        "fleet.errors",
        "fleet.files",
        "fleet.inputs",
        "fleet.inputs.text",
        "fleet.interrupts",
        "fleet.policies",
        "fleet.policies.reach",
        "fleet.policies.shapes",
    ]
    assert ended.stdout == f"0 {light}\n"
