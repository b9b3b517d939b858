"""From a resolved fleet to its stations, fresh and by name, and to the events that open its requests."""

from itertools import chain

import msgspec
import numpy as np

from specfleet.fleet.policies.blocks import CachedBlocks
from specfleet.fleet.policies.order import SHIPPED
from specfleet.fleet.policies.route import LongestPrefix
from specfleet.fleet.scenario.names import PREFILL, ROUTER, verifier_name
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.aligned import AlignedStation
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import Join
from specfleet.fleet.stations.prefill import PrefillStation
from specfleet.fleet.stations.router import RouterStation
from specfleet.fleet.stations.star import admission_of, route_of
from specfleet.fleet.stations.station import Station
from specfleet.fleet.stations.verifier import VerifierStation


def stations(fleet: Fleet) -> dict[str, Station]:
    """Build every station of the fleet, by name."""
    built: list[Station] = [verifier_station(fleet, target) for target in range(fleet.verifiers.count)]
    built += [prefill_station(fleet, server) for server in range(fleet.verifiers.servers - fleet.verifiers.count)]
    built += [drafter_station(fleet, drafter) for drafter in range(fleet.drafters.stations)]
    if fleet.routed:
        built.append(router_station(fleet))
    return {station.name: station for station in built}


def drafter_station(fleet: Fleet, drafter: int = 0) -> DrafterStation:
    """Build a drafter; an order of an installed package also learns how long its requests become."""
    lengths = None
    if not isinstance(fleet.drafters.order, SHIPPED):
        requests = chain.from_iterable(streams_of(fleet).values())
        lengths = {request.number: request.prompt_tokens + request.new_tokens for request in requests}
    drafters = msgspec.structs.replace(fleet.drafters, admit=admission_of(fleet))
    station = DrafterStation(fleet.drafter_name(drafter), drafters, drafter, lengths, *_draft_caches(fleet, 1))
    station.tells_queue = getattr(fleet.verifiers.allocate, "sees_queue", False)
    return station


def router_station(fleet: Fleet) -> RouterStation:
    """Build the router in front of several drafters."""
    route = route_of(fleet)
    assert route is not None
    caches = _draft_caches(fleet, fleet.drafters.count) if isinstance(route, LongestPrefix) else []
    return RouterStation(ROUTER, fleet.drafters.count, route, caches)


def _draft_caches(fleet: Fleet, number: int) -> list[CachedBlocks]:
    """Return prefix caches of so many drafters, if they have some, with what the texts of all requests share."""
    drafters, block = fleet.drafters, fleet.verifiers.batching.block_size
    if not drafters.prefix_cache:
        return []
    requests = list(chain.from_iterable(streams_of(fleet).values()))
    room, again = getattr(drafters.admit, "kv_tokens", 0), int(drafters.kind == "eagle")
    if room > len(requests) * (fleet.room.longest_row + block):  # all texts fit
        room = 0
    texts = {request.number: request.identity for request in requests}
    return [CachedBlocks(room and max(room // block, 1), block, again, texts) for _ in range(number)]


def verifier_station(fleet: Fleet, target: int) -> VerifierStation | AlignedStation:
    """Build a target; its sessions are the streams that `Fleet.target_of` deals to it."""
    kind = AlignedStation if fleet.verifiers.aligned else VerifierStation
    verifiers = msgspec.structs.replace(fleet.verifiers, batching=fleet.verifiers.batching_of(target))
    if verifiers.prefill:  # whose prompts are computed elsewhere
        batching = msgspec.structs.replace(verifiers.batching, prefill_first=False)
        verifiers = msgspec.structs.replace(verifiers, batching=batching, prefix_cache=False)
    return kind(verifier_name(target), verifiers, np.random.default_rng([fleet.seed, 2, target]))


def prefill_station(fleet: Fleet, server: int) -> PrefillStation:
    """Build a prefill server, which is like the first target."""
    verifiers = msgspec.structs.replace(fleet.verifiers, batching=fleet.verifiers.batching_of(0))
    return PrefillStation(f"{PREFILL}.{server + 1}", verifiers)


def prefill_of(fleet: Fleet, tag: int) -> int:
    """Return the prefill server of a stream, from 0: streams are dealt in turn, as to targets."""
    assert fleet.verifiers.prefill
    return tag % fleet.verifiers.prefill.count


def kv_bytes(fleet: Fleet, request: Request) -> int:
    """Return the bytes of the KV cache that a prefill server sends of a prompt."""
    return round(request.prompt_tokens * fleet.verifiers.kv_token_bytes)


def handed_over(fleet: Fleet, tag: int, request: Request) -> Join:
    """Return the event that opens a request at its decode server: with KV cache, first token, and perhaps a draft."""
    join, prompt, prefill = join_of(fleet, tag, request), request.prompt_tokens, fleet.verifiers.prefill
    drafted = fleet.drafters.depth if prefill and prefill.first_round_drafts else 0
    return msgspec.structs.replace(
        join, prompt_tokens=prompt + 1, new_tokens=request.new_tokens - 1, computed=prompt, drafted=drafted
    )


def join_of(fleet: Fleet, tag: int, request: Request) -> Join:
    """Return the event that opens `request` at its target's station."""
    priority = fleet.verifiers.priority(fleet.target_of(tag))
    return Join(tag, request.number, request.prompt_tokens, request.new_tokens, priority, request.identity)
