"""sweep, reproduce, figure: several runs, papers and pictures."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from matplotlib.figure import Figure

from experiments import sweep as sweeps
from experiments.cell import CellResult
from experiments.draw import draw
from experiments.precision import Precision, precision_of
from experiments.reproduce import REPRODUCTIONS
from experiments.reproduce.every import EVERY, every
from experiments.reproduce.rows import Inputs
from fleet.errors import InputError, OutputError
from fleet.files import check_folder
from fleet.inputs.text import shortened
from fleet.scenario.changes import Changes, plain
from fleet.scenario.names import SimPath, World
from fleet.times.profile import HardwareProfile, read_profile
from specfleet.arguments import count_of, function_of, path_of, text_of
from specfleet.asking import asked_of
from specfleet.results import Result
from specfleet.scenario import Given, pairs_of_given, scenario_of
from specfleet.studied import Reproduction, Sweep

Vary = Mapping[str, Iterable[Any]] | Sequence[str]
"""Values by dotted key, or texts such as `verifiers.count=1:16`."""


def sweep(
    scenario: Given,
    vary: Vary,
    changes: Changes | None = None,
    *,
    out: str | Path | None = None,
    world: World = "sim",
    seeds: int = 3,
    jobs: int | None = None,
    done: Callable[[CellResult], None] = lambda _result: None,
    precision: float | Precision | None = None,
    path: SimPath = "auto",
    cluster: str = "",
    **keys: Any,
) -> Sweep:
    """Run a scenario with every combination of the values that `vary` names, in either world.

    `scenario`, `changes` and keywords as in `simulate`. `vary`: values by dotted key, or texts such as
    "verifiers.count=1:16". `out`: a folder that keeps the results, where a rerun finds them. `seeds`: replications a
    cell. `jobs`: simulations at once, by default one a core. `done` is called after each cell. `precision`: as in
    `simulate`; a cell is then one simulation, as long as it takes. `path`: as in `simulate`. `cluster`: HOST:PORT of a
    dask scheduler whose workers run the cells, instead of `jobs` processes here; results are the same. A cell that
    fails loses no other: see `Sweep.errors`. Raises InputError for bad input before anything runs, OutputError
    where a cell cannot be written; its `result` is the sweep until then; and ClusterError for workers that are lost.

    >>> import specfleet
    >>> small = {"workload.requests": 20}
    >>> swept = specfleet.sweep("star", {"verifiers.count": [1, 2]}, small, seeds=2, jobs=1)
    >>> swept.frame()[["verifiers.count", "throughput"]].shape
    (2, 2)
    """
    if not isinstance(world, str) or world not in get_args(World):
        raise InputError(f"world = {world!r} is not known; allowed: {', '.join(get_args(World))}")
    at_once = (os.cpu_count() or 1) if jobs is None else count_of(jobs, "jobs")
    count_of(seeds, "seeds")
    function_of(done, "done")
    aims = precision_of(precision)
    if aims and world != "sim":
        raise InputError("precision: only simulations go on until it is reached; leave it out, or world = sim")
    if not isinstance(path, str) or path not in get_args(SimPath):
        raise InputError(f"path = {path!r} is not known; allowed: {', '.join(get_args(SimPath))}")
    if path != "auto" and world != "sim":
        raise InputError(f"path = {path!r}: only simulations have paths; leave it out, or world = sim")
    if text_of(cluster, "cluster") and world != "sim":
        raise InputError("cluster: only simulations run elsewhere; leave it out, or world = sim")
    folder = path_of(out, "out") if out is not None else None
    if folder is not None:
        check_folder(folder)
    wanted = pairs_of_given(changes, keys)
    # What varies wins, because it comes last.
    cells = [(cell, scenario_of(scenario, [*wanted, *cell.items()])) for cell in sweeps.cells_of(vary_of(vary))]
    try:
        return Sweep(sweeps.sweep(cells, folder, world, seeds, at_once, done, aims, path, cluster))
    except OutputError as error:
        error.result = Sweep(error.result)
        raise


def vary_of(vary: Vary) -> dict[str, list[Any]]:
    """Return the values to vary as lists of plain values by dotted key; InputError for a text that says none.

    >>> vary_of(["verifiers.count=1:3"])
    {'verifiers.count': [1, 2, 3]}
    """
    if isinstance(vary, Mapping):
        return {key: _values(key, values) for key, values in vary.items()}
    if not isinstance(vary, str | Sequence):
        raise InputError(f"vary = {vary!r}: needs lists of values by dotted key, or texts such as verifiers.count=1:16")
    texts = [vary] if isinstance(vary, str) else list(vary)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"vary: {text!r}: needs a text such as verifiers.count=1:16")
    return dict(map(sweeps.parse_vary, texts))


def _values(key: str, values: Any) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"vary: {key} = {values!r}: needs a list of values")
    listed: list[Any] = plain(list(values))
    if not listed:
        raise InputError(f"vary: {key} = []: needs one value or more")
    return listed


def reproduce(
    name: str,
    *,
    profile: HardwareProfile | str | Path | None = None,
    trace: str | Path | None = None,
    data: str | Path | None = None,
) -> Reproduction:
    """Reproduce a paper's table or figure, or "all" of them: the paper's number, ours and the error, row by row.

    `profile`: a calibrated profile, or its file, where this host stands in. `trace`: a run file of the authors
    (amusd-a100). `data`: a folder with measurements that others published (estimates,
    specdecode-fig10, specdecode-fig1). Raises InputError, which lists
    the names, for an unknown one.

    >>> import specfleet
    >>> specfleet.reproduce("starsd-fig6").frame().columns[0]
    'quantity'
    """
    if not isinstance(name, str) or name not in (EVERY, *REPRODUCTIONS):
        allowed = ", ".join((*REPRODUCTIONS, EVERY))
        raise InputError(f"reproduce {shortened(name, quoted=False)}: unknown; allowed: {allowed}")
    if profile is None or isinstance(profile, HardwareProfile):
        measured = profile
    else:
        measured = read_profile(str(path_of(profile, "profile")), Path())
    file = None if trace is None else str(path_of(trace, "trace"))
    folder = None if data is None else str(path_of(data, "data"))
    reproduction = {**REPRODUCTIONS, EVERY: every}[name](Inputs(measured, file, folder))
    return Reproduction(**msgspec.structs.asdict(reproduction))


def figure(
    name: str,
    results: Result | Sweep | Reproduction | HardwareProfile | str | Path,
    out: str | Path | None = None,
    **asked: Any,
) -> Figure:
    """Draw a figure from results or their files, and write it to `out` if given; return the matplotlib figure.

    "throughput" and "sweep" are drawn from a sweep or its folder, "timeline" from a run, "draft-time" and "residuals"
    from a calibrated profile, "plan" from a plan (JSON), "reproduction" from a reproduction (JSON). For "sweep"
    `asked` says what to show, see `specfleet.asking`. Raises InputError for anything else.

    >>> import specfleet
    >>> result = specfleet.simulate("star", workload={"requests": 20})
    >>> len(specfleet.figure("timeline", result).axes)
    1
    """
    drawn: Any = results
    if isinstance(results, Result):
        drawn = results.run
    elif isinstance(results, Sweep):
        drawn = sweeps.table(results.cells)
    question = asked_of(**asked) if asked or name == "sweep" else None
    return draw(text_of(name, "figure"), drawn, path_of(out, "out") if out is not None else None, question)
