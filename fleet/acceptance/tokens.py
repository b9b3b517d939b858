"""Token-level acceptance, for rules that need more than the accepted length.

A token has a ratio, min(1, p/q), its acceptance probability. Some models also give the divergence KL(p||q) and the
drafter's entropy. Estimates (GoodSpeed), stop rules (AdaEDL) and verification use the same tokens, so estimate and
outcome share their randomness.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.acceptance.signals import Regional, SignalFile, recorded, synthetic
from specfleet.fleet.policies.outcome import Outcome, Token

Probability = Annotated[float, Meta(ge=0, le=1)]
Mean = Annotated[float, Meta(gt=0, lt=1)]
CONCENTRATION = 2.0  # concentration of the beta distribution of a domain's ratios
UNKNOWN = "?"


class Agreement(msgspec.Struct, frozen=True, tag="agreement", tag_field="model", forbid_unknown_fields=True):
    """Places of recorded greedy texts where drafter and target agree.

    Greedy text does not depend on the drafter, so a place has the same result under any schedule of drafts: runs of
    one system predict those of another.

    Keys:
        sessions: One text for each recorded session, with a character for each place: "1" where they agree, "0" where
            they do not, "?" where it was not observed.
        unknown (share): The probability that they agree at a place that was not observed.
    """

    sessions: Annotated[tuple[Annotated[str, Meta(pattern="^[01?]+$")], ...], Meta(min_length=1)]
    unknown: Probability


class Ratios(msgspec.Struct, frozen=True, tag="ratios", tag_field="model", forbid_unknown_fields=True):
    """GoodSpeed's clients: each has a list of domains, and its prompts move between them.

    The ratios min(1, p/q) of a domain's tokens follow a beta distribution with the domain's mean.

    Keys:
        clients (share): The domains of client 1, 2, ...: a list of lists of mean ratios, the acceptance probabilities
            of single draft tokens. Streams beyond the list wrap around.
        switch (share): The probability that a new request changes its client's domain. Acceptance is then not
            stationary.
    """

    clients: Annotated[tuple[Annotated[tuple[Mean, ...], Meta(min_length=1)], ...], Meta(min_length=1)]
    switch: Probability = 0.0


TokenModel = Agreement | Ratios | Regional | SignalFile


class TokenSampler:
    """Draws the tokens of a run's sessions and verifies drafts; equal seeds and calls give equal outcomes.

    A session's tokens are kept by place: a place that is drafted again has the same token. Each session has its own
    random numbers, so runs under different rules differ by the rules alone.
    """

    def __init__(self, model: TokenModel | Geometric, rng: np.random.Generator) -> None:
        self.model = model
        self.root = int(rng.integers(1 << 62))
        self.sessions: dict[int, int] = {}
        self.domains: dict[int, int] = {}
        self.sources: dict[int, Iterator[tuple[Token, bool]]] = {}
        self.known: dict[int, list[tuple[Token, bool]]] = {}
        self.first: dict[int, int] = {}

    def begin_session(self, tag: int, first: int) -> None:
        """Start a session whose generated text begins at place `first`, in place of an earlier one of this tag."""
        number = self.sessions[tag] = self.sessions.get(tag, -1) + 1
        rng = np.random.default_rng([self.root, tag, number])
        self.sources[tag] = _tested(self._tokens(tag, rng), rng)
        self.known[tag] = []
        self.first[tag] = first

    def at(self, tag: int, place: int) -> tuple[Token, bool]:
        """Return the draft token at a place of the text, prompt included, and whether the target accepts it."""
        known, position = self.known[tag], place - self.first[tag]
        while len(known) <= position:
            known.append(next(self.sources[tag]))
        return known[position]

    def verify(self, tag: int, base: int, drafted: int) -> Outcome:
        """Draw the outcome, with signals, of verifying `drafted` tokens after the first `base` of the text."""
        if drafted == 0:
            return Outcome()
        tokens, passes = zip(*[self.at(tag, base + place) for place in range(drafted)], strict=True)
        accepted = next((place for place, passed in enumerate(passes) if not passed), drafted)
        return Outcome(accepted).with_signals(tokens)

    def _tokens(self, tag: int, rng: np.random.Generator) -> Iterator[Token]:
        match self.model:
            case Geometric(beta):
                return repeat(Token(beta))
            case Agreement():
                return _agreeing(self.model, rng)
            case SignalFile():
                return recorded(self.model, rng)
            case Regional():
                return synthetic(self.model, rng)
            case Ratios():
                return self._of_domain(self.model, tag, rng)

    def _of_domain(self, model: Ratios, tag: int, rng: np.random.Generator) -> Iterator[Token]:
        domains = model.clients[tag % len(model.clients)]
        now = self.domains.get(tag)
        if now is None:
            now = int(rng.integers(len(domains)))
        elif len(domains) > 1 and rng.random() < model.switch:
            now = (now + 1 + int(rng.integers(len(domains) - 1))) % len(domains)
        self.domains[tag] = now
        mean = domains[now]
        while True:
            for ratio in rng.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, 64).tolist():
                yield Token(ratio)


def _tested(tokens: Iterator[Token], rng: np.random.Generator) -> Iterator[tuple[Token, bool]]:
    """Yield each token and whether the target accepts it."""
    while True:
        uniforms = rng.random(64).tolist()
        yield from [(token, uniform < token.ratio) for uniform, token in zip(uniforms, tokens, strict=False)]


def _agreeing(model: Agreement, rng: np.random.Generator) -> Iterator[Token]:
    """Yield the places of one recorded text, then of further texts chosen at random."""
    while True:
        for place in model.sessions[rng.integers(len(model.sessions))]:
            agrees = rng.random() < model.unknown if place == UNKNOWN else place == "1"
            yield Token(float(agrees))
