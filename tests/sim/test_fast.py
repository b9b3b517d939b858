"""The compiled loop: when it runs, what it refuses, and its compilation."""

import ast
import re
from functools import cache
from pathlib import Path
from subprocess import Popen
from typing import Any

import msgspec
import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import change_scenario, scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim.fast import choice, layout
from specfleet.sim.fast.choice import unsupported_in
from specfleet.sim.fast.compiled import COMPILING, compiled_loop
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.processes import ROOT, ended, start
from tests.helpers.stars import star
from tests.helpers.values import keys_below, values_of
from tests.sim.test_keys import CORNERS, EXAMPLES, corner


@pytest.mark.parametrize("acceptance", [None, {"model": "per-position", "survival": [0.5]}])
def test_plain_decoding_draws_no_acceptance(acceptance: dict[str, Any] | None) -> None:
    scenario = change_scenario(star(drafters={"count": 0}, workload={"streams": 8}), {"acceptance": acceptance})
    assert simulate(scenario, path="fast").digest() == simulate(scenario, path="simpy").digest()


@pytest.mark.parametrize("name", ["star", *(slow(name) for name in CORNERS if name != "star")])
def test_each_key_is_refused_or_gives_equal_rows(name: str) -> None:
    scenario, supported, refused = corner(name), 0, 0
    for key, kind in keys_below(scenario):
        values = EXAMPLES.get(key) or list(values_of(kind))
        for value in values[:2] if key.startswith("profile.") else values:
            try:
                changed = change_scenario(scenario, {key: value})
                if changed == scenario:
                    continue
                fleet = resolve(changed)
                if unsupported_in(fleet):
                    refused += 1
                    continue
                expected = simulate(changed, path="simpy")
            except InputError:
                continue
            supported += 1
            assert simulate(changed, path="fast").digest() == expected.digest(), (key, value)
    assert supported or unsupported_in(resolve(scenario))
    assert refused


def test_headers_differ_only_by_path() -> None:
    slow_run, fast_run = (simulate(star(), path=path) for path in ("simpy", "fast"))
    assert (slow_run.header.path, fast_run.header.path) == ("simpy", "fast")
    alike = [msgspec.structs.replace(run.header, path="", started_unix_s=0.0) for run in (slow_run, fast_run)]
    assert alike[0] == alike[1]
    assert fast_run.digest() == slow_run.digest()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"drafters": {"order": {"policy": "weighted", "weights": [9.0]}}}, 'drafters.order = "weighted"'),
        ({"drafters": {"count": 2, "route": "shortest-queue"}}, 'drafters.route = "shortest-queue"'),
        ({"verifiers": {"patience_s": 9.0}}, "verifiers.patience"),
        ({"verifiers": {"allocate": {"policy": "adaptive", "depth": 3}}}, 'verifiers.allocate = "adaptive"'),
        ({"verifiers": {"prefill": {}}}, "verifiers.prefill = "),
        ({"drafters": {"prefix_cache": True}}, "drafters.prefix_cache = true"),
        ({"drafters": {"overlap": "ahead"}}, 'drafters.overlap = "ahead"'),
        ({"profile": ""}, "without a profile"),
        ({"drafters": {"place": "target", "shape": {"kind": "tree"}}}, "drafters.shape"),
        (
            {"drafters": {"place": "target"}, "verifiers": {"allocate": {"policy": "fixed", "depth": 2}}},
            'verifiers.allocate = "fixed"',
        ),
        ({"verifiers": {"kv_tokens": 512, "prefix_cache": True}}, "kv_tokens and prefix_cache with drafters elsewhere"),
        (
            {
                "faults": [{"what": "link", "effect": "drop", "share": 0.1}],
                "verifiers": {"patience_s": 9.0},
                "drafters": {"lease_s": 9.0},
            },
            "faults",
        ),
    ],
)
def test_unsupported_fleets_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refusal:
        simulate(star(**changes), path="fast")
    text = str(refusal.value)
    assert named in text
    assert "simpy" in text


def test_the_page_lists_shipped_scenarios_that_leave_the_loop() -> None:
    page = (ROOT / "docs" / "compiled-loop.md").read_text()
    (counts,) = re.findall(r"^\| (\d+) shipped \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    names = shipped_files("scenarios")
    left = {name for name in names if unsupported_in(resolve(scenario_of(name)))}
    assert (int(counts[0]), int(counts[1])) == (len(names), len(names) - len(left))
    assert left == {name for name in re.findall(r"`(.*?)`", counts[2]) if name in names}


def test_unknown_paths_are_refused() -> None:
    with pytest.raises(InputError, match="allowed: auto, simpy, fast"):
        simulate(star(), path="quick")  # type: ignore[arg-type]


def test_without_numba_auto_uses_simpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"pip install 'specfleet\[fast\]'"):
        simulate(star(), path="fast")
    assert simulate(star()).header.path == "simpy"


def test_import_errors_of_numba_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_name: str) -> None:
        raise ImportError("Numba needs another NumPy.\nGot this one.")

    monkeypatch.setattr(choice, "import_module", fails)
    monkeypatch.setattr(choice, "import_failure", cache(choice.import_failure.__wrapped__))
    monkeypatch.setattr(choice, "spent", {"tokens": 0.0})
    monkeypatch.setattr(choice, "WORTH_LOADING_TOKENS", 0)
    with pytest.raises(InputError, match=r"which says: Numba needs another NumPy. Got this one.; allowed here"):
        simulate(star(), path="fast")
    assert simulate(star()).header.path == "simpy"


def test_auto_loads_the_loop_when_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "spent", {"tokens": 0.0})
    small = star(workload={"requests": 10, "new_tokens": 50})
    monkeypatch.setattr(choice, "WORTH_LOADING_TOKENS", 1200)
    assert [simulate(small).header.path for _ in range(4)] == ["simpy", "simpy", "fast", "fast"]
    assert simulate(star(drafters={"order": {"policy": "priority"}})).header.path == "simpy"


@pytest.mark.slow
def test_loops_are_compiled_anew_after_a_change_of_a_function(tmp_path: Path) -> None:
    """Numba's cache alone does not see changes in other files than that of the loop."""
    loop = (
        "from pathlib import Path\n"
        "from specfleet.sim.fast.compiled import code_of, compiled_loop\n"
        "from called import changed\n\n\n"
        "@compiled_loop\n"
        "def run(_code, x):\n"
        "    return changed(x)\n\n\n"
        "print(run(code_of(Path(__file__).parent), 10), sum(run.stats.cache_hits.values()))\n"
    )
    (tmp_path / "loop.py").write_text(loop)

    def outcome(change: str) -> str:
        (tmp_path / "called.py").write_text(
            f"from specfleet.sim.fast.compiled import compiled\n\n\n@compiled\ndef changed(x):\n    return {change}\n"
        )
        return ended(start(tmp_path / "loop.py", env={"NUMBA_CACHE_DIR": str(tmp_path)}))[1]

    assert [outcome(change) for change in ("x + 1", "x + 1", "x - 1")] == ["11 0\n", "11 1\n", "9 0\n"]


def test_processes_that_begin_together_compile_once(tmp_path: Path) -> None:
    """Two wait for a process that holds the lock until it is killed; a later one neither compiles nor says so."""
    (tmp_path / "loop.py").write_text(
        "import sys, time\n"
        "from specfleet.sim.fast.compiled import compiled_loop, in_turn, ready\n\n\n"
        "@compiled_loop\n"
        "def run(x):\n"
        "    return x + 1\n\n\n"
        "print('begun', flush=True)\nif sys.argv[1] == 'holds':\n"
        "    with in_turn(run.stats.cache_path):\n"
        "        print('holds', flush=True)\n        time.sleep(60)\n"
        "print(ready(run, 10)(10), sum(run.stats.cache_hits.values()))\n"
    )

    def begin(what: str, *lines: str) -> Popen[str]:
        begun = start(tmp_path / "loop.py", what, env={"NUMBA_CACHE_DIR": str(tmp_path)})
        assert begun.stdout is not None
        assert [begun.stdout.readline() for _ in lines] == list(lines)
        return begun

    with begin("holds", "begun\n", "holds\n") as holder:
        waiting = [begin("waits", "begun\n") for _ in range(2)]
        holder.kill()
    outcomes = sorted(ended(process)[1:] for process in waiting)
    assert outcomes == [("11 0\n", COMPILING), ("11 1\n", COMPILING)]
    assert ended(begin("waits", "begun\n"))[1:] == ("11 1\n", "")


def test_compiled_code_is_in_one_folder() -> None:
    """The digest of loops is that of their folder, and functions of other folders are not compiled."""
    room = Path(layout.__file__).parent
    with_code = [path for path in room.parent.rglob("*.py") if "\n@compiled" in path.read_text()]
    assert room / "serving.py" in with_code
    for path in with_code:
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert all(isinstance(node, ast.ImportFrom) for node in nodes)
        modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)} - {"typing"}
        assert path.parent == room
        assert all(f"{module}.".startswith("specfleet.sim.fast.") for module in modules), path


def test_changed_records_are_other_types() -> None:
    for name in (name for name in vars(layout) if name.startswith(("A_", "AN_"))):
        dtype = getattr(layout, name)
        other = np.dtype([(f"{field}_renamed", kind) for field, (kind, _) in dtype.fields.items()])
        assert numba.typeof(np.zeros(1, dtype)) == numba.typeof(np.zeros(2, dtype))
        assert numba.typeof(np.zeros(1, dtype)) != numba.typeof(np.zeros(1, other))


def test_functions_compile_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def without_cache(*functions: Any, **options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*functions, **options)

    monkeypatch.setattr(numba, "njit", without_cache)
    assert compiled_loop(lambda x: x + 1)(2) == 3
