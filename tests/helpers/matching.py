"""Agreement of two decodings of the same requests: the metrics of Batch Speculative Decoding Done Right, table 1."""

from collections.abc import Mapping, Sequence

import msgspec

Texts = Mapping[int, Sequence[int]]


class Match(msgspec.Struct, frozen=True):
    """`exact`: share of texts that are equal; `partial`: mean share of a text's tokens before its first mismatch.

    `first`: place of the first mismatch of each different text, by request.
    """

    exact: float
    partial: float
    first: dict[int, int]


def match(texts: Texts, reference: Texts) -> Match:
    """Compare texts with their references, request by request; ValueError unless both have the same requests."""
    if texts.keys() != reference.keys() or not texts:
        raise ValueError(f"requests {sorted(texts)} cannot be compared with {sorted(reference)}")
    agreed = {request: _agreement(texts[request], wanted) for request, wanted in reference.items()}
    first = {request: place for request, place in agreed.items() if texts[request] != reference[request]}
    shares = [agreed[request] / max(len(wanted), 1) for request, wanted in reference.items()]
    return Match(1 - len(first) / len(texts), sum(shares) / len(shares), first)


def _agreement(text: Sequence[int], wanted: Sequence[int]) -> int:
    """Tokens before the first mismatch."""
    pairs = zip(text, wanted, strict=False)
    return next((place for place, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(text), len(wanted)))
