"""The answer of plan, on the terminal and in files: a fleet for a load, methods by load, a star by targets."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specfleet.experiments.console.printing import print_json, print_notes, print_table, print_values, say
from specfleet.fleet.shown import number, with_ends

if TYPE_CHECKING:
    from specfleet.experiments.plan.answer import Plan, Row

EACH = " at each target"  # the end of a load that is not the fleet's
WRITTEN, MOST_NAMED = "Written by `specfleet plan`.", 100  # the latter: letters of a file's name


def write_answer(answer: "Plan", folder: Path) -> list[str]:
    """Write an answer (JSON), its figure, and each row's fleet as a scenario: the chosen one's is chosen.toml.

    Returns the names of the files.
    """
    from specfleet.experiments.draw import draw
    from specfleet.fleet.files import remove_files, write_file, write_json
    from specfleet.fleet.scenario.named_files import absolute
    from specfleet.fleet.scenario.writing import scenario_lines

    files = ["plan.json", "plan.png"]
    write_json(with_ends(answer), folder / files[0])
    draw("plan", answer, folder / files[1])
    for old in folder.glob("[0-9]*-*.toml"):  # of an answer before
        if old.read_text().startswith(f"# {WRITTEN}"):
            remove_files(folder, old.name)
    for place, (row, scenario) in enumerate(zip(answer.best(), answer.scenarios, strict=True), 1):
        named = re.sub(r"[^\w.@-]+", "-", " ".join((f"{place} {row.method}", *[row.load] * (len(answer.loads) > 1))))
        files.append("chosen.toml" if scenario is answer.scenario else f"{named[:MOST_NAMED]}.toml")
        said = answer.lines if scenario is answer.scenario else [answer.question]
        comments = [WRITTEN, f"{row.load}: {row.fleet}: {row.standing}", *said]
        write_file(folder / files[-1], "\n".join(scenario_lines(absolute(scenario), comments=comments)) + "\n")
    return files


def print_shipped(what: str, as_json: bool = False) -> None:
    """Print the models, devices, engines or published acceptances that ship, as a table or as JSON by name."""
    from specfleet.fleet.acceptance.published import published_rows
    from specfleet.fleet.data.shipped import shipped_files, shipped_models
    from specfleet.fleet.errors import InputError
    from specfleet.fleet.hardware.passes import precisions_of
    from specfleet.fleet.hardware.shipped import device_of, engine_of, shape_of
    from specfleet.fleet.inputs.nearest import nearest

    of_models, of_devices = ("published in", "10^9 parameters", "positions"), ("weights in", "GB", "GB/s")
    rows = published_rows()
    tables: dict[str, tuple[Any, ...]] = {
        "models": (shipped_models(), shape_of, of_models, lambda shape: (
            shape.quantised or None, shape.parameters() / 1e9, shape.positions or None)),
        "devices": (shipped_files("devices"), device_of, of_devices, lambda device: (
            ", ".join(precisions_of(device)), *(
                figure.value / 1e9 for figure in (device.memory_bytes, device.bandwidth_bytes_per_s)))),
        "engines": (shipped_files("engines"), engine_of, ("name",), lambda engine: (engine.title,)),
        "acceptance": (rows, rows.get, ("by position", "temperature", "basis", "source"), lambda row: (
            row.shares, row.temperature, row.basis, row.source)),
    }  # fmt: skip
    if what not in tables:
        raise InputError(f"--list {what}: {nearest(what, tables)}")
    names, read, columns, cells = tables[what]
    if as_json:
        print_json({name: dict(zip(columns, cells(read(name)), strict=True)) for name in names})
    else:
        print_values("", (what.removesuffix("s"), *columns), [(name, *cells(read(name))) for name in names], texts=2)


def print_answer(answer: "Plan") -> None:
    """Print what is left out, the lines of an answer, its tables, and its other notes."""
    left_out = [note for note in answer.notes if note.startswith("left out: ")]
    say("\n".join((answer.title, *left_out, *answer.lines)))
    source = f"simulated; step times {answer.basis}; costs in {answer.unit}"
    if len(answer.loads) > 1:
        _print_methods(answer, source)
    else:
        columns = (
            "targets", "depth", "", "tokens/s\nin all", "a user", "TPOT\nP99, ms", "TTFT\nP90, ms", "at\nonce",
            "an hour", "10^6\ntokens",
        )  # fmt: skip
        rows = [(row.method, *_cells(row)) for row in answer.best()]
        print_table(source, ("best fleet of each method", *columns), rows, texts=4)
        if answer.rule is not None:
            heading = (f"targets of {answer.rule.drafter}", *_of_a_star(columns))
            print_table("", heading, _by_targets(answer), texts=3)
    if len({row.method for row in answer.best()}) > 2 and "@" in answer.chosen.target:
        elsewhere = " (elsewhere: and --set drafters.place=own)" * any(row.drafters for row in answer.best())
        say(f"another row as the answer: --target, its --draft alone{elsewhere} or none; -o FOLDER keeps all")
    if answer.commands:
        head = f"start a target of this fleet (vLLM, SGLang), and measure it at its share of {answer.loads[0]}:"
        say("\n".join((head, *answer.commands)))
    print_notes(note for note in answer.notes if note not in left_out)


def _cells(row: "Row") -> tuple[str, ...]:
    servers = f"{row.prefills} + {row.targets}" if row.prefills else f"{row.targets}"
    of = row.metrics
    times = [number(1e3 * of[name].value) if name in of else "-" for name in ("tpot_p99_s", "ttft_p90_s")]
    return (
        f"{servers} x {row.target.rpartition('@')[2]}", str(row.depth or "-"), row.standing,
        number(row.tokens_per_s), number(1 / row.metrics["tpot_s"].value, 3), *times, number(row.running, 3),
        number(row.cost_per_hour), number(row.per_million, 3),
    )  # fmt: skip


def _of_a_star(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Return what differs by the number of targets: no places, prompts, or requests at once."""
    return (*cells[1:6], *cells[8:])


def _by_targets(answer: "Plan") -> list[tuple[str, ...]]:
    """Return the best simulated fleet for each number of targets of the best drafter elsewhere."""
    apart = next(row for row in answer.best() if row.drafters)
    best: dict[int, Row] = {}
    for row in answer.rows:
        if (row.method, row.target) == (apart.method, apart.target):
            best.setdefault(row.targets // row.drafters, row)
    rows = ((str(targets), *_of_a_star(_cells(best[targets]))) for targets in sorted(best))
    late = {str(targets): ", decode" * row.fleet.endswith("decode late drafts") for targets, row in best.items()}
    return [(targets, f"{depth}{late[targets]}", *cells) for targets, depth, *cells in rows]


def _print_methods(answer: "Plan", source: str) -> None:
    best, loads, each = answer.best(), answer.loads, answer.loads[0].endswith(EACH)
    several = " at {}" * (each and len({row.target for row in best}) > 1)
    cells = {(row.method + several.format(row.target), row.load): row for row in reversed(best)}
    names = list(dict.fromkeys(name for name, _ in reversed(cells)))
    of, p99 = ("a target" if each else "the fleet", ", its P99" * ("/s" in loads[0]))
    columns = [load.removesuffix(EACH) for load in loads]
    for title, heading, text in (
        (source, f"tokens/s of {of} (mean TPOT, TTFT{p99} in ms; depth)", _text),
        ("", "cost of 10^6 tokens", lambda row: f"{number(row.per_million, 3)} ({row.standing})"),
        ("", "KV cache that they need", lambda row: "no limit" if row.kv_share is None else f"{row.kv_share:.0%}"),
    ):
        rows = [(name, *(text(cells[name, at]) if (name, at) in cells else "-" for at in loads)) for name in names]
        print_table(title, (heading, *columns), rows)


def _text(row: "Row") -> str:
    """Say what a fleet gives: in a closed loop one of its targets, since all have as many requests."""
    if not row.load.endswith(EACH):
        tokens, several = row.tokens_per_s, f"; {row.targets} x {row.target.rpartition('@')[2]}"
    else:
        tokens = row.tokens_per_s / row.targets
        sharing = row.targets // row.drafters if row.drafters else 0
        several = f", {sharing} target{'s' * (sharing > 1)} a drafter" if sharing else ""
    depth = f"; {row.depth}" if row.depth else ""
    names = ("tpot_s", "ttft_s", "ttft_p99_s")[: 3 if "/s" in row.load and "ttft_p99_s" in row.metrics else 2]
    tpot, *ttft = (1e3 * row.metrics[name].value for name in names)
    return f"{tokens:.0f} ({tpot:.1f}, {', '.join(f'{time:.0f}' for time in ttft)}{depth}{several})"
