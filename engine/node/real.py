"""Nodes of real stations, with their models loaded: a drafter for every target that connects, and a target.

A target has its users' requests, and clients to its drafters (StarSD, algorithm 1), or a drafter on its own device.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from specfleet.engine.decoding.block import BlockDrafter
from specfleet.engine.decoding.cache import WARM_UP
from specfleet.engine.decoding.draft import EVEN, Drafter
from specfleet.engine.decoding.eagle import EagleDrafter
from specfleet.engine.decoding.feed import Nodes
from specfleet.engine.decoding.graphs import LONGEST_CHAIN, MAX_GRAPHS, MAX_TOKENS, SIGHTS, bucket
from specfleet.engine.decoding.lookup import LookupDrafter
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.slots import SlotCache
from specfleet.engine.decoding.telemetry import timed
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.content import DRAWN
from specfleet.engine.net.socket_thread import RateLimitedLog
from specfleet.engine.node.aligned import AlignedExecutor
from specfleet.engine.node.build import AnyDrafter, load_target, new_drafter, new_finder, new_streams, new_target
from specfleet.engine.node.executors import DraftExecutor, VerifyExecutor
from specfleet.engine.node.node import HERE, Node, Site, clients_of_drafters, drafting_node, say_nothing
from specfleet.engine.node.pending import PendingDrafts, repeats
from specfleet.engine.node.serving import ServingExecutor
from specfleet.engine.node.worker import device_lock
from specfleet.engine.node.write_ahead_log import open_log, unfinished
from specfleet.fleet.policies.group import One
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import requests_of, streams_of
from specfleet.fleet.stations.aligned import AlignedStation
from specfleet.fleet.stations.build import verifier_station
from specfleet.fleet.stations.star import admission_of
from specfleet.fleet.stations.verifier import VerifierStation

WARM_UP_TOKENS = 8  # the first steps of a process are slow
READY = 16  # at time zero, with graphs: rows of an open load that have places, and numbers of rows


def drafter_node(fleet: Fleet, number: int = 0, lock_file: Path | None = None, site: Site = HERE) -> Node:
    """Return the node of drafter `number` (from 0), with its model loaded.

    `lock_file`: of a device that it shares by time slices.
    """
    streams = range(max(fleet.streams, fleet.verifiers.count))
    rows = sum(fleet.drafter_of(tag) == number for tag in streams)  # at the beginning; a router may change it
    admit = admission_of(fleet)
    rows = next((admitted for admitted in range(rows) if admit.refusal(admitted) is not None), rows)
    rows = max(rows, 1) + (fleet.drafters.warm_up.tokens_after(float("inf")) > 0)  # its tokens have a row of their own
    drafter = new_drafter(fleet, room=(rows, fleet.room.longest_row), number=number)
    log = RateLimitedLog(site.say, now_s())
    say = None if site.say is say_nothing else lambda line: log.log(line, now_s())
    executor = DraftExecutor(drafter, new_streams(fleet), not fleet.in_turn, say)
    drafter.warm_up(WARM_UP_TOKENS)
    rehearse(fleet, drafter, alone=fleet.drafters.group == One())
    inputs = (drafter.model.vocabulary, drafter.state_numbers) if isinstance(drafter, Drafter) else (0, 0)
    on_device = partial(timed, device=drafter.device)
    return drafting_node(fleet, number, executor, "real", site, *inputs, on_device, device_lock(lock_file))


def verifier_node(
    fleet: Fleet,
    target: int,
    prompts: Sequence[Sequence[int]],
    addresses: Mapping[int, str],
    lock_file: Path | None = None,
    site: Site = HERE,
    signals: bool = False,
    model: CausalLM | None = None,
) -> Node:
    """Return the node of target number `target`.

    - `prompts[i]`: token ids of request i.
    - `addresses`: see `clients_of_drafters`.
    - `lock_file`: of a device that it shares by time slices.
    - `site`: a later life of its process goes on with the requests that are not finished.
    - `signals`: whether those of every drafted token are recorded.
    - `model`: the target's, if it is loaded already.
    """
    life, model = site.life, model or load_target(fleet, target)
    streams = {tag: requests for tag, requests in streams_of(fleet).items() if fleet.target_of(tag) == target}
    station = verifier_station(fleet, target)
    executor = executor_of(fleet, target, station, model, prompts, len(streams), signals)
    life.wait_until_back()
    connections, sockets = None, None
    if fleet.drafters.stations:
        connections, sockets = clients_of_drafters(fleet, [target], addresses, site, model.vocabulary)
    node = Node(
        fleet, RecordedStation(station, "real", open_log(life), life.written), executor, connections, sockets,
        unfinished(streams, life), timed=partial(timed, device=model.device), lock=device_lock(lock_file), site=site,
    )  # fmt: skip
    node.outputs = executor.outputs
    if isinstance(executor, ServingExecutor):
        node.signals = executor.recorded
    return node


def executor_of(
    fleet: Fleet,
    number: int,
    station: VerifierStation | AlignedStation,
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    streams: int,
    signals: bool = False,
) -> VerifyExecutor:
    """Return what runs the steps of target `number`. `streams`: of its own; the others as in `verifier_node`."""
    verifiers = fleet.verifiers
    rows = min(streams, verifiers.batching.max_num_seqs) if fleet.workload.arrivals is None else 1  # they vary
    room, signals = (max(rows, 1), fleet.room.longest_row), signals or fleet.needs != "lengths"
    pool = None if isinstance(station, AlignedStation) else station.rows.cache
    target, opens = new_target(fleet, model, room, number, pool), new_streams(fleet, prompts)
    if not isinstance(station, AlignedStation):  # its rows stand in a rectangle
        target.warm_up(WARM_UP_TOKENS)
        rehearse(fleet, target)
    if verifiers.drafts is None:
        pending, rejoins = PendingDrafts(repeats(fleet)), verifiers.patience.patience_s > 0
        return VerifyExecutor(target, opens, pending, fleet.drafters.kind == "eagle", signals, rejoins, fleet.in_turn)
    drafter, grants = new_drafter(fleet, model, room, pool=pool), station.grants
    rehearse(fleet, drafter)
    watch = grants.stops if grants is not None and grants.allocation.watches else None
    if isinstance(station, AlignedStation):
        return AlignedExecutor(drafter, target, opens, station.rule, watch, signals)
    executor = ServingExecutor(drafter, target, opens, watch, signals)
    if first := fleet.drafters.first:
        executor.finder, executor.first = new_finder(first.kind, drafter.device), first
        executor.drawn = verifiers.rule if fleet.workload.temperature and verifiers.rule in DRAWN else ""
    executor.chooses = grants is not None and grants.chooses and fleet.needs == "signals"
    return executor


def rehearse(fleet: Fleet, part: AnyDrafter | Target, alone: bool = False) -> None:
    """Capture the graphs of a run's passes before time zero, and none within it; say how long that takes.

    They have all lengths of a fleet's texts, and each row `alone` or the first rows: one, all, two, all but one, ...
    """
    if isinstance(part, LookupDrafter) or part.model.graphs is None or not isinstance(part.cache, SlotCache):
        return
    model, graphs, cache, longest = part.model, part.model.graphs, part.cache, fleet.room.longest_row
    begun_s, before, most = now_s(), len(graphs), cache.rows_allocated
    more = fleet.verifiers.batching.max_num_seqs if fleet.workload.arrivals else 1
    rows = [WARM_UP - row for row in range(max(most, min(most * more, fleet.workload.requests, READY)))]
    for row in rows:
        cache.open(row)
    if isinstance(part, EagleDrafter):
        features = torch.zeros(longest, part.head.config.hidden_size, dtype=cache.dtype, device=cache.device)
        part.features = dict.fromkeys(rows, features)
    feed = partial(model.feed, cache, taps=part.taps) if isinstance(part, Target) else part.feed
    counts = sorted(range(1, len(rows) + 1), key=lambda count: min(count - 1, len(rows) - count))[:READY]
    # With drafters elsewhere each pass of a target may have other rows, which take longer to move than to launch.
    cache.leads = not alone and (isinstance(part, Drafter) or not fleet.drafters.stations)
    groups = [rows[:count] for count in counts] if cache.leads else [[row] for row in rows] + [rows] * (not alone)
    passes = [(group, *form) for group in groups for form in repeated(fleet, part, len(group), len(group) == len(rows))]
    widths = {min(bucket(width), longest) for width in range(int(requests_of(fleet).prompts.min()), longest + 1)}
    for width, (group, tokens, branches), _ in product(sorted(widths), passes, range(SIGHTS)):
        if len(graphs) < MAX_GRAPHS and tokens < width and len(group) * tokens <= MAX_TOKENS:
            cache.lengths.update(dict.fromkeys(group, width - tokens))
            seen = torch.ones(1, tokens, tokens, dtype=torch.bool, device=cache.device)
            nodes = Nodes(0, seen, seen[0, :1].long()) if branches else None
            fed = torch.zeros(len(group) * tokens, dtype=torch.long, device=cache.device)
            feed(group, fed, [tokens] * len(group), nodes)
    for row in rows[::-1]:  # the first row is the next to open
        cache.close(row)
    if isinstance(part, EagleDrafter):
        part.features.clear()
    graphs.close(cache)
    sys.stderr.write(f"{model.name}: {len(graphs) - before} CUDA graphs in {now_s() - begun_s:.1f} s\n")


def repeated(fleet: Fleet, part: Drafter | Target, rows: int, is_all: bool) -> list[tuple[int, bool]]:
    """Return the passes of so many rows that a run repeats: tokens a row, and whether they are a tree's."""
    drafters, rule = fleet.drafters, fleet.verifiers.allocate
    shape, depth = drafters.shape, min(fleet.room.longest_draft, LONGEST_CHAIN - 1)
    if isinstance(part, Target):
        passes = [(1 + shape.nodes(level), shape.kind != "chain" and level > 0) for level in range(depth + 1)]
        varies = rows == 1 or is_all or rule or drafters.finds or drafters.first or drafters.stations
        return passes if varies else passes[-1:]  # the longest draft of several rows is rarely short
    # What the cache lacks, with masks of a block; then the levels of a draft but the last one.
    is_block = isinstance(part, BlockDrafter)
    masks, most = is_block * (depth - 1), depth + 1 if is_block or part.reads_hidden else 2
    lacking = range(1 + masks * (rows > 1), 1 + masks + (most if rows == 1 else min(most, EVEN)))
    levels = [shape.width] if shape.kind == "dynamic" else np.cumprod(shape.children(depth - 1)).tolist()
    return sorted({(tokens, False) for tokens in lacking} | {(level, shape.kind != "chain") for level in levels})
