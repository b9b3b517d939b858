"""Frames: messages survive packing, and any bytes are a message or one typed error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode

from specfleet.engine.net.content import DRAWN, NOTHING, Content
from specfleet.engine.net.frames import HEADER, VERSION, FrameError, pack, parse, payload_of
from specfleet.engine.net.handshake import Alive, Bye, Denied, Hello, Unknown, Welcome
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Refusal, View
from specfleet.fleet.stations.payload import TOKEN_BYTES
from specfleet.fleet.stations.session import ERA, INCARNATION

numbers = st.integers(0, 1 << 30)
names = st.text(max_size=20)
messages = st.one_of(
    st.builds(DraftRequest, numbers, numbers, numbers, numbers, st.booleans(), numbers, st.integers(-1, 100)),
    st.builds(Draft, numbers, numbers, numbers, numbers, numbers),
    st.builds(Refusal, numbers, numbers, names),
    st.builds(Leave, numbers, numbers),
    st.builds(View, numbers, numbers, numbers),
    st.builds(Hello, st.just("verifier"), numbers, numbers, numbers, st.dictionaries(names, names, max_size=5)),
    st.builds(Welcome, numbers),
    st.builds(Denied, numbers, names, st.booleans()),
    st.sampled_from([Alive(), Bye(), Unknown()]),
)
ids = st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=12)


@st.composite
def weights(draw: st.DrawFn) -> np.ndarray | None:
    shape = draw(st.tuples(st.integers(0, 4), st.integers(1, 5)))
    return np.random.default_rng(shape[0]).random(shape).astype(np.float16) if shape[0] else None


contents = st.builds(Content, ids, st.none() | ids, weights(), weights(), st.sampled_from(["", *DRAWN]))


@given(messages, contents)
def test_a_packed_message_parses_to_itself(message: object, content: Content) -> None:
    said, got = parse(pack(message, content))  # type: ignore[arg-type]
    assert said == message
    assert list(got.tokens) == list(content.tokens)
    assert got.nodes == content.nodes
    assert got.rule == content.rule
    for one, other in ((got.distributions, content.distributions), (got.hidden, content.hidden)):
        assert (one is None) == (other is None)
        assert one is None or (one.shape == other.shape and (one == other).all())  # type: ignore[union-attr]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_raise_a_frame_error(frame: bytes) -> None:
    with pytest.raises(FrameError):
        parse(frame)
    with pytest.raises(FrameError):
        parse(b"sf" + bytes([VERSION]) + frame)


@given(messages, contents, st.data())
def test_a_damaged_frame_is_a_message_or_a_frame_error(message: object, content: Content, data: st.DataObject) -> None:
    frame = bytearray(pack(message, content))  # type: ignore[arg-type]
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(frame) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "insert"]))
        if how == "set":
            frame[where] = data.draw(st.integers(0, 255))
        elif how == "cut" and len(frame) > 1:
            del frame[where : where + data.draw(st.integers(1, 8))]
        else:
            frame[where:where] = data.draw(st.binary(max_size=8))
        if not frame:
            break
    try:
        said, got = parse(bytes(frame))
    except FrameError:
        return
    parse(pack(said, got))  # accepted frames are well-formed


@given(messages, contents, st.integers(1, 40))
def test_a_shorter_or_longer_frame_is_an_error(message: object, content: Content, count: int) -> None:
    frame = pack(message, content)  # type: ignore[arg-type]
    for bad in (frame[:-count], frame + bytes(count)):
        with pytest.raises(FrameError):
            parse(bad)


def test_a_false_size_in_a_header_allocates_nothing() -> None:
    huge = HEADER.pack(b"sf", VERSION, 0, 10, 0xFFFFFFFF, 0xFFFFFFFF, *[0xFFFFFFFF] * 4, 0.0)
    with pytest.raises(FrameError, match="contradict"):
        parse(huge + bytes(10))


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name in ("tag", "request", "base", "tokens") for number in (-2, 1 << 31, 1 << 62)]
    + [("epoch", -2), ("epoch", 1 << 62)],
)
def test_numbers_beyond_the_columns_of_records_are_an_error(name: str, number: int) -> None:
    fields = {"tag": 1, "request": 1, "epoch": 1, "base": 1, "tokens": 1} | {name: number}
    with pytest.raises(FrameError, match=rf"\$\.{name}`"):
        parse(pack(Draft(**fields)))


def test_payloads_are_those_of_the_simulation() -> None:
    draft, drawn = Draft(3, 200, 150, 900, 2), np.ones((2, 50), np.float16)
    assert payload_of(pack(draft)) == len(encode(draft))
    greedy = len(encode(draft)) + 2 * TOKEN_BYTES
    assert payload_of(pack(draft, Content([1, 2]))) == greedy
    assert payload_of(pack(draft, Content([1, 2], None, drawn, rule="rejection"))) == greedy + 2 * 100 + 1
    assert parse(pack(Leave(0, 1)))[1] is NOTHING


@pytest.mark.parametrize("lives", [1, 3, 1000])
def test_large_epochs_and_numbers_of_views_are_allowed(lives: int) -> None:
    epoch = lives * INCARNATION + 5 * ERA + 7
    for message in (
        DraftRequest(0, 1, epoch, 9, opening=True, tokens=0),
        Draft(0, 1, epoch, 9, 0),
        Refusal(0, 1, "full", epoch),
        Leave(0, 1, epoch),
        View(1, (lives << 32) + 4, 2),
    ):
        assert parse(pack(message)) == (message, NOTHING)
