"""Closed loops of a target that drafts on its own device, whose steps are timed: by rows, depths and lengths.

Loops with drafts and without alternate between numbers of rows. Ours run in one process, which loads the target once.
Engines of others may run them; of running servers one for each draft length, which a server keeps.
"""

import gc
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.build import load_target, with_positions
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import verifier_node
from specfleet.engine.outside.answers import run_on_server
from specfleet.engine.outside.engines import OutsideEngine, packages_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.aligned import SameLength
from specfleet.fleet.policies.outcome import Token
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.names import Engine
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, Verifiers, Workload
from specfleet.fleet.scenario.workload import has_file, read_lengths, recorded_of, with_arrivals, with_lengths

ROWS = (1, 4, 16, 64)  # up to what a target runs at once
ANSWER = 48  # most tokens of an answer: prompts are longer instead, since they are read at once
Signals = dict[int, list[Token]]
"""Signals of drafted tokens by request."""
STATED = re.compile(r"(\d{1,4})=(.+)", re.DOTALL)


class Elsewhere(NamedTuple):
    """Another engine that runs the loops.

    - `version`: what tells it apart from others, such as its packages.
    - `notes`: what did not add up; `run` appends to it.
    - `depths`: of its loops, where it cannot have those of `depths_of`.
    """

    run: Callable[[Scenario], Run]
    version: str
    notes: list[str]
    depths: tuple[int, ...] = ()


def rows_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the numbers of rows of the loops: powers of 4 up to what a target runs at once, and that.

    >>> from specfleet.fleet.scenario.scenario import Verifiers
    >>> rows_of(Scenario("ten", verifiers=Verifiers(max_num_seqs=10)))
    (1, 4, 10)
    """
    most = min(scenario.verifiers.max_num_seqs, ROWS[-1])
    return (*(few for few in ROWS if few < most), most)


def depths_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the depths of the loops of each pass; 0 is plain decoding, which aligned rows do without.

    Drafts have the scenario's depth, or a quarter: one depth cannot part tokens from fixed times, and depths of
    different passes would be parted by the host's speed.
    """
    depth, first = scenario.drafters.depth, scenario.drafters.first
    depth = first.of_head(depth) if first else depth
    drafted = tuple(dict.fromkeys((depth, depth // 4 or 1))) if scenario.drafters.count else ()
    return (*drafted, *(() if scenario.verifiers.aligned else (0,)))


def covering(workload: Workload) -> Workload:
    """Return a workload with the contexts of another one, evenly over their logarithm, and short answers.

    Contexts are from half its shortest prompt, since one length cannot part tokens from fixed times, to its longest
    text. Nothing is shared: what is found would not be measured.

    >>> covering(Workload(prompt_tokens=128, new_tokens=96)).prompt_tokens
    Between(low=64, high=176, mean=110.0, cv=2.0)
    """
    lengths, prompts = read_lengths(workload), with_lengths(workload).prompt_tokens
    if has_file(workload):
        shortest = min(prompt for prompt, _ in recorded_of(workload).texts[: workload.requests])
    else:
        shortest = prompts if isinstance(prompts, int) else prompts.low
    answer = min(lengths.longest_answer, ANSWER)
    low, high = max(shortest // 2, 1), lengths.longest_text - answer
    mean = (high - low) // math.log(high / low) if high > low else low
    evenly = Between(low, high, max(mean, low), cv=2.0)
    own = msgspec.structs.replace(workload, lengths="", arrivals=None, seed=None, shared=None, conversations=None)
    return msgspec.structs.replace(own, prompt_tokens=evenly, new_tokens=answer)


def in_blocks(looped: Scenario, verifiers: Verifiers) -> Scenario:
    """Return loops with the blocks of a target that has a prefix cache, which take longer to read than whole rows.

    They are as many as the most rows fill: nothing is preempted. Targets that verify trees have no blocks.
    """
    if not verifiers.prefix_cache or looped.drafters.shape.kind != "chain":
        return looped
    size, replace = verifiers.kv_block_size, msgspec.structs.replace
    row = -(-(read_lengths(looped.workload).longest_text + 2 * looped.drafters.depth) // size) + 1
    blocks = {"prefix_cache": True, "kv_block_size": size, "kv_tokens": rows_of(looped)[-1] * row * size}
    return replace(looped, verifiers=replace(looped.verifiers, **blocks))


def loop_of(scenario: Scenario, rows: int, depth: int, seed: int, least: int = 12) -> Scenario:
    """Return a closed loop of so many requests at once at one target; `depth`: of drafts, none of them found, or 0.

    Of aligned rows, all requests wait from the beginning. `least`: requests of up to 4 rows; more rows have more.
    """
    replace, place = msgspec.structs.replace, scenario.drafters.place if depth else "own"
    allocate, aligned = scenario.verifiers.allocate, scenario.verifiers.aligned
    if isinstance(aligned, SameLength):
        aligned = replace(aligned, window=3 * rows)
    drafters = replace(scenario.drafters, count=int(depth > 0), place=place, first=UNSET)
    workload = with_arrivals(scenario.workload, None)
    requests, size = max(least, least * rows // 4), rows if aligned else scenario.verifiers.max_num_seqs
    return replace(
        scenario,
        seed=seed,
        drafters=replace(drafters, depth=depth or drafters.depth),
        verifiers=replace(
            scenario.verifiers, count=1, allocate=allocate if depth else None, aligned=aligned, max_num_seqs=size
        ),
        workload=replace(workload, requests=requests, streams=requests if aligned else rows),
    )


def recording_loop(scenario: Scenario, requests: int, most: int = ROWS[-1]) -> Scenario:
    """Return a loop over so many calibration prompts with drafts of the scenario's depth, `most` at once."""
    rows = min(scenario.verifiers.max_num_seqs, most)
    recorded = loop_of(scenario, rows, scenario.drafters.depth, scenario.seed)
    replace = msgspec.structs.replace
    return replace(
        recorded,
        drafters=replace(recorded.drafters, first=scenario.drafters.first),
        # What a draft is worth is no matter of the rows' alignment; one rule throws accepted tokens away.
        verifiers=replace(recorded.verifiers, aligned=None, allocate=None),
        workload=replace(recorded.workload, requests=requests, streams=min(rows, requests - 1)),
    )


def run_loops(loops: Sequence[Scenario], texts: Workload, signals: bool = False) -> list[tuple[Run, Signals]]:
    """Run loops of one target in this process, which loads it once; prompts are those of `texts`, repeated or cut.

    - `signals`: whether those of drafted tokens are recorded, by request, though no rule needs them.
    """
    target, results = load_target(resolve(loops[0])), []
    for loop in loops:
        fleet = with_positions(resolve(loop))
        check_can_run(fleet)
        asked = msgspec.structs.replace(with_arrivals(texts, None), requests=loop.workload.requests)
        given = prompts_of(resolve(msgspec.structs.replace(loop, workload=asked)))
        prompts = [stretched(prompt, fleet.lengths.longest_text) for prompt in given]
        node = verifier_node(fleet, 0, prompts, {}, signals=signals, model=target)
        results.append((make_run(loop, "engine", node.serve(now_s()), fleet), node.signals))
        del node
        gc.collect()  # its caches: a node refers to itself
    return results


def stretched(tokens: Sequence[int], length: int) -> list[int]:
    """Return `length` tokens: the given ones, repeated or cut."""
    return (list(tokens) * (length // len(tokens) + 1))[:length]


def servers_of(stated: Sequence[str], scenario: Scenario) -> dict[int, str]:
    """Return the address of the server for each draft length in tokens; 0 is plain decoding.

    - `stated`: "LENGTH=URL", or "URL" for the scenario's own length.

    Raises InputError for two servers of one length, and where none has the scenario's.
    """
    planned = scenario.drafters.depth if scenario.drafters.count else 0
    urls: dict[int, str] = {}
    for text in stated:
        named = STATED.fullmatch(text)
        depth, url = (int(named[1]), named[2]) if named else (planned, text)
        if depth in urls:
            raise InputError(f"--server {text}: {urls[depth]} drafts {depth} tokens, too; name one of them")
        if depth > planned:
            raise InputError(f"--server {text}: drafts more than the scenario's drafters.depth = {planned}; raise it")
        urls[depth] = url
    if planned not in urls:
        lacks = f"none drafts the scenario's {planned} tokens; add --server {planned}=URL"
        raise InputError(f"--server {stated[0]}: {lacks}")
    return urls


@contextmanager
def other_engine(engine: Engine | None, urls: Mapping[int, str]) -> Iterator[Elsewhere | None]:
    """Yield what runs the loops of a calibration: an engine of others, or servers by their draft lengths; else None."""
    notes = list[str]()

    def report(line: str) -> None:
        if line.startswith("note: "):  # other lines are of progress
            notes.append(line.removeprefix("note: "))

    def run(loop: Scenario) -> Run:
        return run_on_server(loop, urls[loop.drafters.depth if loop.drafters.count else 0], report)

    if urls:
        yield Elsewhere(run, " ".join(urls.values()), notes, tuple(urls))
    elif engine is not None:
        with OutsideEngine(engine, report) as outside:
            yield Elsewhere(outside.run, packages_of(engine), notes)
    else:
        yield None
