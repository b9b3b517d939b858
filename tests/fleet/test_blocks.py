"""The block pool: equal to a plain simulation of vLLM's, block for block, and what holds for all."""

import gzip
import json
import os
import random
from collections import Counter
from copy import deepcopy
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, target
from hypothesis import strategies as st

from specfleet.fleet.policies.blocks import CachedBlocks, Identity, source_of
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.workload import streams_of

Tokens = list[tuple[int, int]]  # source and place of each token
TRACE = Path(os.environ.get("SPECFLEET_DATA", "no data")) / "mooncake-conversation-first-4000.jsonl.gz"


def tokens_of(identity: Identity, own: int, length: int) -> Tokens:
    ends = list(zip(identity[::2], identity[1::2], strict=True))
    return [(next((source for source, end in ends if place < end), own), place) for place in range(length)]


class PlainPool:
    """vLLM's pool by its rules: blocks as a list in order of eviction, contents as whole beginnings of texts."""

    def __init__(self, blocks: int, size: int, again: int) -> None:
        self.free = list(range(1, blocks + 1))
        self.size, self.again = size, again
        self.users: Counter[int] = Counter()
        self.cached: dict[tuple[tuple[int, int], ...], list[int]] = {}  # blocks that end with these tokens
        self.rows: dict[int, list[int]] = {}
        self.hashed: dict[int, int] = {}

    def begin(self, tag: int, tokens: Tokens, known: int) -> list[int]:
        found: list[int] = []
        for end in range(self.size, known, self.size):
            holders = self.cached.get(tuple(tokens[:end]))
            if not holders:
                break
            found.append(holders[0])
        return found[: len(found) - self.again] if len(found) >= self.again else []

    def touch(self, tag: int, found: list[int]) -> None:
        for block in found:
            self.free = [other for other in self.free if other != block]
            self.users[block] += 1
        self.rows[tag], self.hashed[tag] = list(found), len(found)

    def grow(self, tag: int, tokens: Tokens, number: int, known: int) -> None:
        for _ in range(number):
            block = self.free.pop(0)
            self.cached = {key: [b for b in held if b != block] for key, held in self.cached.items()}
            self.users[block] = 1
            self.rows[tag].append(block)
        for place in range(self.hashed[tag], known // self.size):
            self.cached.setdefault(tuple(tokens[: (place + 1) * self.size]), []).append(self.rows[tag][place])
            self.hashed[tag] = place + 1

    def end(self, tag: int) -> None:
        for block in reversed(self.rows.pop(tag)):
            self.users[block] -= 1
            if not self.users[block]:
                holds = any(block in held for held in self.cached.values())
                self.free.insert(len(self.free) if holds else 0, block)


def queue(pool: CachedBlocks) -> list[int]:
    """Free blocks in the order in which they are taken; those that were never used come after those without content."""
    order, block = [], pool.after[0]
    while block:
        order.append(block)
        block = pool.after[block]
    empty = sum(not pool.contents[block] for block in order)
    return [*order[:empty], *range(len(pool.users), pool.limit + 1), *order[empty:]]


def texts_of(rng: random.Random, number: int) -> list[tuple[Identity, int, int]]:
    """Identity, tokens of the prompt, goal of each text: beginnings, some of which go on as a text before."""
    texts: list[tuple[Identity, int, int]] = []
    for request in range(number):
        group, shared, talk = rng.randrange(3), rng.randrange(1, 12), tuple[int, ...]()
        if request and rng.random() < 0.5:
            earlier = rng.randrange(request)
            group, shared = texts[earlier][0][:2]
            talk = ((*texts[earlier][0], source_of(earlier))[2], shared + rng.randrange(1, 15))
        prompt = shared + rng.randrange(1, 10)
        texts.append(((group, shared, *talk), prompt, prompt + rng.randrange(1, 12)))
    return texts


@pytest.mark.parametrize("seed", range(200))
def test_the_pool_is_vllms_block_for_block(seed: int) -> None:  # noqa: C901 (a request's life)
    """Requests begin, grow, are preempted, return and end; a planned step that does not begin leaves no trace."""
    rng = random.Random(seed)
    size, again, limit = rng.choice([1, 2, 4]), rng.randrange(2), rng.randrange(12, 40)
    pool, plain = CachedBlocks(limit, size, again), PlainPool(limit, size, again)
    texts = texts_of(rng, 12)
    known = {tag: prompt for tag, (_, prompt, _) in enumerate(texts)}
    whole = {tag: tokens_of(identity, source_of(tag), goal) for tag, (identity, _, goal) in enumerate(texts)}
    for tag, (identity, _, _) in enumerate(texts):
        pool.open(tag, tag, identity)
    waiting, running = list(known), list[int]()

    def grow(tag: int, tokens: int) -> None:
        more = -(-tokens // size) - len(plain.rows[tag])
        if more <= pool.free:
            pool.take(tag, more)
            pool.fill(tag, tokens)
            pool.keep()
            plain.grow(tag, whole[tag], more, tokens)

    for _ in range(150):
        tag = rng.choice([*waiting[:1], *running]) if waiting or running else 0
        if tag in waiting:
            found = list(pool.find(tag, known[tag]))
            assert found == plain.begin(tag, whole[tag], known[tag])
            needed = -(-known[tag] // size) - len(found)
            if needed + pool.unused(found) <= pool.free:
                before = deepcopy((pool.users, pool.contents, pool.places, pool.free, queue(pool)))
                for _ in range(2):  # the first is only planned
                    pool.undo()
                    assert (pool.users, pool.contents, pool.places, pool.free, queue(pool)) == before
                    pool.take(tag, needed, found)
                    pool.fill(tag, known[tag])
                pool.keep()
                plain.touch(tag, found)
                plain.grow(tag, whole[tag], needed, known[tag])
                running.append(waiting.pop(0))
        elif tag in running and known[tag] < len(whole[tag]) and rng.random() < 0.7:
            known[tag] += 1
            grow(tag, known[tag])
        elif tag in running:
            running.remove(tag)
            plain.end(tag)
            if known[tag] < len(whole[tag]):
                waiting.insert(0, tag)
                pool.give_back(tag, 0)
                pool.keep()
            else:
                pool.close(tag)
        assert {tag: pool.texts[tag].blocks for tag in running} == plain.rows
        assert queue(pool) == plain.free
        assert {block: n for block, n in enumerate(pool.users) if n} == {b: n for b, n in plain.users.items() if n}
        held = [held for held in plain.cached.values() if held]
        assert sorted(map(sorted, pool.places.values())) == sorted(map(sorted, held))
        assert pool.free == len(plain.free)


SOURCES = st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 3), st.integers(0, 4))
TEXTS = st.lists(SOURCES, min_size=1, max_size=9)


@given(texts=TEXTS, size=st.integers(1, 3), again=st.integers(0, 1), ends=st.lists(st.integers(0, 3), max_size=9))
def test_more_memory_never_makes_fewer_hits_of_one_order(
    texts: list[tuple[int, int, int, int]], size: int, again: int, ends: list[int]
) -> None:
    """Requests begin and end in one order, some while others run: a larger cache holds what a smaller one does.

    A block that a request finds is as young as the one that it would else fill, and it takes no other block.
    """
    found: list[int] = []
    for limit in range(36, 60, 2):  # four texts fit into the smallest one
        pool, hits, running = CachedBlocks(limit, size, again), 0, list[int]()
        for request, (group, shared, own, more) in enumerate(texts):
            known = shared + own + more
            pool.open(request, request, (group, shared, 10 * group + shared + 10, shared + own))
            hits += pool.hold_text(request, known, known)
            running.append(request)
            leave = ends[request] if request < len(ends) else 1
            while len(running) > 3 or (leave and running):
                pool.close(running.pop(leave % len(running)))
                leave -= leave > 0
            held = {block for tag in running for block in pool.texts[tag].blocks}
            contents = [content for content in pool.contents if content]
            assert len(queue(pool)) + len(held) == pool.free + len(held) == limit  # blocks are conserved
            assert sum(map(len, pool.places.values())) == len(contents)  # and have one content each
        found.append(hits)
    assert found == sorted(found)
    target(float(found[-1]))


@pytest.mark.parametrize("limit", [0, 10**9])
def test_a_pool_takes_the_memory_of_used_blocks(limit: int) -> None:
    """Also of steps that are planned again and again, and do not begin."""
    pool = CachedBlocks(limit, 16)
    for tag in range(50):
        pool.open(tag, tag)
        for _ in range(9):
            pool.undo()
            assert not pool.hold_text(tag, 64, 64) if tag % 2 else pool.take(tag, 4) is None
        pool.close(tag)
    assert len(pool.users) == len(pool.before) <= 1 + 50 * 4


def test_requests_without_identities_share_nothing_but_find_their_own_blocks_again() -> None:
    pool = CachedBlocks(100, 4)
    for tag in range(40):  # also those whose sources Python would hash alike
        pool.open(tag, tag, ())
        assert not pool.find(tag, 9)
        pool.take(tag, 3)
        pool.fill(tag, 9)
        pool.give_back(tag, 0)
        assert len(pool.find(tag, 9)) == 2
        assert len(pool.find(tag, 8)) == 1  # the last token is computed


def share_by_hand(rows: list[dict[str, int | list[int]]], unit: int) -> float:
    """Share of prompt tokens whose ids were seen before, in whole blocks, without the last token."""
    seen: set[int] = set()
    hits = tokens = 0
    for row in rows:
        length, ids = row["input_length"], row["hash_ids"]
        assert isinstance(length, int)
        assert isinstance(ids, list)
        known = next((place for place, number in enumerate(ids) if number not in seen), len(ids))
        hits += min(known, (length - 1) // unit) * unit
        tokens += length
        seen.update(ids)
    return hits / tokens


def share_of_pool(file: Path, block: int) -> float:
    """Share of prompt tokens that hit in a pool without end, request after request."""
    trace = {"process": "trace", "file": str(file)}
    verifiers = {"prefix_cache": True, "kv_block_size": block}
    workload = {"arrivals": trace, "requests": 10**5}
    fleet = resolve(make_scenario({"verifiers": verifiers, "workload": workload, "drafters": {"count": 0}}))
    pool, hits, tokens = CachedBlocks(0, block), 0, 0
    for request in chain.from_iterable(streams_of(fleet).values()):
        pool.open(0, request.number, request.identity)
        hits += pool.hold_text(0, request.prompt_tokens, request.prompt_tokens)
        pool.close(0)
        tokens += request.prompt_tokens
    return hits / tokens


def test_a_traces_share_equals_the_count_by_hand(tmp_path: Path) -> None:
    """Prompts often begin as one before."""
    rng, rows, made = random.Random(0), list[dict[str, int | list[int]]](), 0
    for time in range(60):
        length = rng.randrange(1, 5000)
        blocks = -(-length // 512)
        known = rng.choice(rows)["hash_ids"] if rows and rng.random() < 0.7 else []
        assert isinstance(known, list)
        ids = [*known[: min(rng.randrange(blocks + 1), len(known) - 1)]]
        ids += range(made, made := made + blocks - len(ids))
        rows.append({"timestamp": time, "input_length": length, "output_length": 9, "hash_ids": [*ids]})
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    assert share_of_pool(file, 512) == share_by_hand(rows, 512) > 0.1
    assert 0 < share_of_pool(file, 64) - share_by_hand(rows, 512) < 0.1  # smaller blocks find ends of prompts


@pytest.mark.skipif(not TRACE.exists(), reason="needs the published trace in SPECFLEET_DATA")
def test_mooncakes_trace_hits_a_third(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_bytes(gzip.decompress(TRACE.read_bytes()))
    share = share_of_pool(file, 512)
    assert share == share_by_hand([json.loads(line) for line in file.read_text().splitlines()], 512)
    assert share == pytest.approx(0.331, abs=0.0005)
