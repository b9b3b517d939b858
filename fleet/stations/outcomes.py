"""Outcomes of steps without models: accepted lengths and signals from the acceptance model, in both worlds."""

from collections.abc import Callable
from functools import partial

import msgspec

from specfleet.fleet.acceptance.models import Geometric, Sampler
from specfleet.fleet.acceptance.signals import Regional, SignalFile
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.acceptance.tokens import TokenModel, TokenSampler
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.aligned import AlignedRule
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.aligned import AlignedStation
from specfleet.fleet.stations.station import Station
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Member, Step, StepKind

DONE = (Outcome(),)


def nothing(step: Step) -> tuple[Outcome, ...]:
    """Return the outcome of a step without a decision."""
    return DONE if len(step.members) == 1 else (Outcome(),) * len(step.members)


class Outcomes:
    """Draws acceptance. Streams keep their place in the model's texts at every verifier.

    A request's acceptance depends only on the fleet's seed and acceptance model. It is therefore equal in both
    worlds, and in every process that draws it.
    """

    def __init__(self, fleet: Fleet) -> None:
        rng = sources_of(fleet.seed).acceptance
        self.ahead = isinstance(fleet.drafters.overlap, Ahead)
        by_token = self.ahead or fleet.needs == "ratios"
        self.tokens: TokenSampler | None = None
        self.lengths: Sampler | None = None
        self.looks_up, self.first = fleet.drafters.finds, fleet.drafters.first
        self.chooses = fleet.needs == "signals" and getattr(fleet.verifiers.allocate, "chooses", False)
        self.drafts: dict[str, list[int]] = {}  # draft tokens of the rows of a running draft step, by station
        self.prompts: dict[tuple[int, int], int] = {}  # tokens of prompts, by tag and request
        if not fleet.drafters.count:
            return
        model = fleet.acceptance_model()
        if fleet.needs == "signals" and not isinstance(model, SignalFile | Regional):
            raise InputError(
                f"scenario {fleet.name!r}: acceptance.model = {model.__struct_config__.tag!r} knows neither divergence "
                "nor entropy, and the length rule looks at them; allowed: signals, synthetic-signals"
            )
        if isinstance(model, TokenModel) or (by_token and isinstance(model, Geometric)):
            self.tokens = TokenSampler(model, rng)
        elif by_token:
            raise InputError(
                f"scenario {fleet.name!r}: its rules need to know single tokens; acceptance.model = "
                f"{model.__struct_config__.tag!r} knows lengths of rounds; allowed: geometric, or a model of tokens"
            )
        else:
            self.lengths = Sampler(model, fleet.room.longest_draft, rng)
        if self.first and not (self.lengths and self.lengths.drafted):
            raise InputError(
                f"scenario {fleet.name!r}: drafters.first: acceptance.model = {model.__struct_config__.tag!r} does not "
                "say what is found; allowed: found with a head, or recorded with drafted"
            )

    def at(self, station: Station, rule: AlignedRule | None = None) -> Callable[[Step], tuple[Outcome, ...]]:
        """Return the function that draws the outcomes of a verifying station's steps.

        - `rule`: of aligned rows, which may keep fewer tokens than were accepted.
        """
        return partial(self._of, station, rule)

    def drafting(self, station: AlignedStation | VerifierStation) -> Callable[[Step], list[int]]:
        """Return the function that draws each row's draft length, cut by a stop rule; negative if it is found first."""

        def drafted(step: Step) -> list[int]:
            drafts = self.drafts[station.name] = [self._draft(member, station) for member in step.members]
            return drafts

        return drafted

    def _draft(self, member: Member, station: AlignedStation | VerifierStation) -> int:
        if self.looks_up and self.lengths is not None:
            return min(self.lengths.found.get(member.tag, member.tokens), member.tokens)
        if self.first and self.lengths is not None:
            return -min(self.lengths.found.get(member.tag, 0), member.tokens) or self.first.of_head(member.tokens)
        if self.tokens is None or station.grants is None:
            return member.tokens
        for drafted in range(1, member.tokens):
            token, _ = self.tokens.at(member.tag, member.base + drafted - 1)
            if station.grants.stops(member.tag, token.entropy):
                return drafted
        return member.tokens

    def _entropies(self, member: Member, drafted: int) -> tuple[float, ...]:
        """Return those of a draft's tokens, for a rule that chooses by them what is verified."""
        if not self.chooses or self.tokens is None:
            return ()
        return tuple([self.tokens.at(member.tag, member.base + place)[0].entropy for place in range(drafted)])

    def _of(self, station: Station, rule: AlignedRule | None, step: Step) -> tuple[Outcome, ...]:
        if step.kind == "draft":
            lengths = zip(step.members, self.drafts[station.name], strict=True)
            return tuple([Outcome(drafted=abs(n), entropies=self._entropies(of, n), found=n < 0) for of, n in lengths])
        outcomes = tuple([self._outcome(step.kind_of(member), member, station) for member in step.members])
        if rule is None or step.kind != "verify":
            return outcomes
        kept = zip(outcomes, rule.kept([outcome.accepted for outcome in outcomes]), strict=True)
        return tuple([msgspec.structs.replace(outcome, accepted=accepted) for outcome, accepted in kept])

    def _outcome(self, kind: StepKind, member: Member, station: Station) -> Outcome:
        if kind == "verify":
            return self._verify(member, station)
        if kind == "prefill":
            self.begin(member.tag, member.request, member.base + member.tokens)
        return DONE[0]

    def begin(self, tag: int, request: int, prompt: int) -> None:
        """Begin a text at its prompt's end, again after a restart; one that is prefilled anew, preempted, goes on."""
        place = tag, request
        known = place in self.prompts
        if prompt > self.prompts.setdefault(place, prompt):
            return
        if self.lengths is not None:
            self.lengths.begin_session(tag, request)
        elif self.tokens is not None and not known:
            self.tokens.begin_session(tag, prompt)

    def _verify(self, member: Member, station: Station) -> Outcome:
        tag, drafted, passed = member.tag, member.tokens, member.behind
        if self.lengths is not None:
            accepted = self.lengths.draw(tag, drafted + passed)
            return Outcome(max(accepted - passed, 0))
        assert self.tokens is not None
        if passed and self.tokens.verify(tag, member.base - passed, passed).accepted < passed:
            return Outcome()  # the text went on with other tokens than the draft
        outcome = self.tokens.verify(tag, member.base, drafted)
        # If the drafter went on, the target's own token is compared with the tail's next one.
        went_on = self.ahead and outcome.accepted == drafted < station.sessions[tag].tail
        if went_on and self.tokens.at(tag, member.base + drafted)[1]:
            return msgspec.structs.replace(outcome, matches=True)
        return outcome
