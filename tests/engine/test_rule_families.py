"""Laws of drafting and verification over families of samplings, shapes, batches and logits, not over listed cases."""

import math
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.grow import Drafts, entropies
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.rules import Rule
from specfleet.engine.decoding.sampling import Sampling, distributions, widened
from specfleet.engine.decoding.trees import static_tree
from specfleet.engine.decoding.verify import Target, Verdict, measure_signals
from specfleet.engine.net.content import Content
from specfleet.engine.net.frames import pack, parse
from specfleet.engine.node.build import Streams
from specfleet.engine.node.drafts import contents_of, drafts_of
from specfleet.engine.node.executors import DraftExecutor
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from specfleet.fleet.stations.messages import Draft, DraftRequest
from specfleet.fleet.times.step import Member, Step
from tests.engine.test_rules import HOST, VOCABULARY, WARM, distance, drafted, language, rounds, verified
from tests.helpers.branches import explore, explore_rows, masses_of
from tests.helpers.pairs import VOCABULARY as TINY

samplings = st.builds(Sampling, st.floats(0.02, 5.0), st.integers(0, VOCABULARY), st.floats(0.01, 1.0) | st.just(1.0))
branchings = st.sampled_from([(1,), (2,), (3,), (1, 2), (2, 1), (3, 1), (1, 3), (2, 2)])
static_shapes = st.just(CHAIN) | branchings.map(lambda branching: tree(*branching))
dynamic_shapes = st.builds(dynamic, st.integers(1, 3), st.integers(1, 6))


@st.composite
def speculations(draw: st.DrawFn) -> tuple[Rule, Shape, int]:
    """A rule, a shape that it can verify, and a depth at which all branches can be followed."""
    rule: Rule = draw(st.sampled_from(["rejection", "without-replacement", "top-k", "match"]))
    drawn = rule in ("rejection", "without-replacement")
    shape = draw(static_shapes if rule == "without-replacement" else static_shapes | dynamic_shapes)
    few = 5 if drawn and shape.kind != "dynamic" else 9
    deepest = max(depth for depth in (1, 2, 3) if depth == 1 or shape.nodes(depth) <= few)
    return rule, shape, draw(st.integers(1, deepest))


@settings(max_examples=60)
@given(speculations(), samplings, st.integers(0, 99), st.booleans())
def test_outputs_follow_the_targets_distribution_for_any_draft(
    speculation: tuple[Rule, Shape, int], sampling: Sampling, seed: int, rules_out: bool
) -> None:
    """Total variation over every branch; also with tokens that the models rule out."""
    rule, shape, depth = speculation
    rng = np.random.default_rng(seed)
    target, drafter = language(rng, depth), language(rng, depth)
    if rules_out:
        for texts in (target, drafter):
            for logits in texts.values():
                if rng.random() < 0.5:
                    logits[rng.integers(VOCABULARY)] = -np.inf
    emitted = masses_of(rounds(target, drafter, shape, depth, rule, sampling))
    assert sum(emitted.values()) == pytest.approx(1.0, abs=1e-12)
    assert distance(target, sampling, depth, emitted) < 1e-12


MISMATCHES: list[tuple[Rule, Rule]] = [("rejection", "without-replacement"), ("without-replacement", "rejection")]


@pytest.mark.parametrize(("drawn_for", "verified_by"), MISMATCHES)
def test_drafts_of_another_rule_would_bias_the_output(drawn_for: Rule, verified_by: Rule) -> None:
    distances = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        target, drafter = language(rng, 1), language(rng, 1)
        emitted = masses_of(
            (mass * share, text)
            for mass, drafts in explore(partial(drafted, drafter, tree(2), 1, drawn_for, WARM))
            for _, share, text in explore_rows(verified(drafts, target, verified_by, WARM))
        )
        distances.append(distance(target, WARM, 1, emitted))
    assert max(distances) > 0.01, distances


@cache
def model_of(folder: Path) -> CausalLM:
    return load_model(str(folder), "target", "float64", "cpu")


def opened(tiny: Path, rule: Rule, sampling: Sampling, tags: Sequence[int], seed: int = 0) -> Target:
    """A target with streams, each with its prompt and its random numbers, after their first tokens."""
    target = Target(model_of(tiny / "target"), rule)
    for tag in tags:
        target.open(
            tag, np.random.default_rng(tag).integers(TINY, size=6 + tag).tolist(), sampling, seed=100 * seed + tag
        )
        target.prefill(tag)
    return target


def draft_of(tiny: Path, target: Target, tag: int, shape: Shape, depth: int, sampling: Sampling, rule: Rule) -> Drafts:
    drafter = Drafter(model_of(tiny / "kin"), shape, rule)
    drafter.open(tag, list(target.committed(tag)), sampling, seed=1000 + tag)
    drafter.read(tag)
    return drafter.draft([tag], [depth])


def sent(content: Content) -> Content:
    """A draft's content after the wire."""
    return parse(pack(Draft(0, 0, 1, 9, len(content.tokens)), content))[1]


@settings(max_examples=25)
@given(data=st.data(), rule=st.sampled_from(["rejection", "without-replacement", "top-k", "match"]))
def test_a_row_does_not_depend_on_its_neighbours_drafts(tiny: Path, data: st.DataObject, rule: Rule) -> None:
    """Chains and trees of any fan-out and depth in one verification, drawn and sent as each is alone."""
    drawn = rule in ("rejection", "without-replacement")  # a dynamic tree has no random draws
    shapes = static_shapes if drawn else static_shapes | dynamic_shapes
    sampling = Sampling(data.draw(st.floats(0.3, 2.0)), data.draw(st.sampled_from([0, 5])))
    wanted = data.draw(st.lists(st.tuples(shapes, st.sampled_from([3, 2, 1, 0])), min_size=3, max_size=5))
    tags = range(len(wanted))
    for seed in range(3):
        together, apart = (opened(tiny, rule, sampling, tags, seed) for _ in range(2))
        contents = [sent(contents_of(draft_of(tiny, together, tag, *wanted[tag], sampling, rule))[0]) for tag in tags]
        batched = together.verify(tags, drafts_of(contents, HOST))
        for tag in tags:
            alone = apart.verify([tag], drafts_of(contents[tag : tag + 1], HOST))[0]
            assert (alone.path, alone.tokens) == (batched[tag].path, batched[tag].tokens)


@settings(max_examples=25)
@given(
    shape=static_shapes | dynamic_shapes,
    rule=st.sampled_from(["rejection", "top-k", "match"]),
    depths=st.lists(st.integers(0, 4), min_size=2, max_size=4),
    temperature=st.sampled_from([0.0, 0.7, 1.3]),
)
def test_a_row_does_not_depend_on_its_neighbours_lengths(
    tiny: Path, shape: Shape, rule: Rule, depths: list[int], temperature: float
) -> None:
    sampling, tags = Sampling(temperature), range(len(depths))

    def said(groups: Sequence[Sequence[int]]) -> dict[int, list[Any]]:
        """The drafts and tokens of each row in three rounds, with rows in these groups."""
        target, drafter = opened(tiny, rule, sampling, tags), Drafter(model_of(tiny / "kin"), shape, rule)
        for tag in tags:
            drafter.open(tag, list(target.committed(tag)), sampling, seed=tag)
            drafter.read(tag)
        rows: dict[int, list[Any]] = {tag: [] for tag in tags}
        for _ in range(3):
            for group in groups:
                drafts = drafter.draft(group, [depths[tag] for tag in group])
                verdicts: list[Verdict] = target.verify(group, drafts)
                for row, (tag, verdict) in enumerate(zip(group, verdicts, strict=True)):
                    drafter.advance(tag, verdict.path, verdict.tokens)
                    own = drafts.tokens[row].tolist()
                    assert set(own[drafts.counts[row] :]) <= {-1}
                    rows[tag].append((own[: drafts.counts[row]], verdict.path, verdict.tokens))
        return rows

    assert said([list(tags)]) == said([[tag] for tag in tags])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_target_refuses_drafts_that_were_drawn_for_another_rule(tiny: Path, temperature: float) -> None:
    sampling = Sampling(temperature)
    for drawn_for, verified_by in [*MISMATCHES, ("rejection", "match")]:
        target = opened(tiny, verified_by, sampling, [0])
        content = sent(contents_of(draft_of(tiny, target, 0, tree(2, 1), 2, sampling, drawn_for))[0])
        before = list(target.committed(0))
        if temperature == 0:  # no random draws: every rule is greedy
            assert content.rule == ""
            assert target.verify([0], drafts_of([content], HOST))
            continue
        assert content.rule == drawn_for
        with pytest.raises(InputError, match=f"draws for verifiers.rule = '{drawn_for}'.*verifies by '{verified_by}'"):
            target.verify([0], drafts_of([content], HOST))
        assert target.committed(0) == before
    other = Content([1], rule="without-replacement", distributions=np.ones((1, TINY), np.float16))
    if temperature:
        with pytest.raises(InputError, match="rejection and without-replacement"):
            drafts_of([msgspec.structs.replace(content, rule="rejection"), other], HOST)


class Broken:
    """A model with logits of one row that are not numbers from some call on."""

    def __init__(self, model: CausalLM, calls: int, row: int, value: float) -> None:
        self.model, self.calls, self.row, self.value = model, calls, row, value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.model.logits(hidden).clone()
        self.calls -= 1
        if self.calls < 0:
            flat = logits.view(-1, logits.shape[-1])
            flat[self.row % len(flat), self.row % TINY if math.isnan(self.value) else slice(None)] = self.value
        return logits


@settings(max_examples=30)
@given(
    shape=static_shapes | dynamic_shapes,
    row=st.integers(0, 30),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_broken_logits_of_the_target_name_their_position(
    tiny: Path, shape: Shape, row: int, value: float, temperature: float
) -> None:
    sampling = Sampling(temperature)
    target = opened(tiny, "rejection", sampling, [0])
    drafts = draft_of(tiny, target, 0, shape, 2, sampling, "rejection")
    node = row % (drafts.tree.nodes + 1)
    known = len(target.committed(0)) + int(drafts.tree.depths[0, node])
    target.model = Broken(target.model, 0, node, value)  # type: ignore[assignment]
    with pytest.raises(InputError, match=f"^target .*target: its logits after {known} tokens of stream 0 are"):
        target.verify([0], drafts)


@settings(max_examples=30)
@given(
    shape=static_shapes | dynamic_shapes,
    level=st.integers(0, 2),
    value=st.sampled_from([math.nan, math.inf]),
    temperature=st.sampled_from([0.0, 1.0]),
    sends=st.booleans(),
)
def test_broken_logits_of_the_drafter_are_an_error(
    tiny: Path, shape: Shape, level: int, value: float, temperature: float, sends: bool
) -> None:
    sampling = Sampling(temperature)
    target = opened(tiny, "rejection", sampling, [0])
    drafter = Drafter(model_of(tiny / "kin"), shape, "rejection")
    drafter.model = Broken(drafter.model, level, 0, value)  # type: ignore[assignment]
    prefix, depth = list(target.committed(0)), 3
    if shape.kind == "dynamic":
        level = 0  # deeper nodes may be cut off the tree
        drafter.model.calls = 0  # type: ignore[attr-defined]
    message = f"^drafter .*kin: its logits after {len(prefix) + level} tokens of stream 0 are no numbers"
    if sends:
        executor = DraftExecutor(drafter, Streams((), sampling=sampling))
        executor.receive(DraftRequest(0, 0, 1, len(prefix), opening=True), Content(prefix))
        with pytest.raises(InputError, match=message):
            executor.run(Step(1, "draft", (Member(0, 0, 1, len(prefix), depth),)))
        return
    drafter.open(0, prefix, sampling)
    with pytest.raises(InputError, match=message):
        target.verify([0], drafter.draft([0], [depth]))


def finite_somewhere(row: list[float]) -> bool:
    return max(row) > -math.inf


def logits_of(tokens: int) -> st.SearchStrategy[list[list[float]]]:
    """Two rows of so many logits."""
    row = st.lists(st.floats(-50, 50) | st.just(-math.inf), min_size=tokens, max_size=tokens).filter(finite_somewhere)
    return st.tuples(row, row).map(list)


logit_rows = st.integers(3, 5).flatmap(logits_of)  # drafter and target may be padded differently


@given(logit_rows, logit_rows, st.floats(0, 3), st.integers(0, 2), st.integers(0, 3))
def test_signals_are_finite_also_where_models_rule_tokens_out(
    target: list[list[float]], drafter: list[list[float]], temperature: float, top_k: int, token: int
) -> None:
    p, q = torch.tensor([[*target, target[0]]]).double(), torch.tensor([drafter]).double()
    drafts = Drafts(static_tree((1, 1), HOST), torch.tensor([[token, token]]), [2], [2], logits=q)
    for place, signal in enumerate(measure_signals(drafts, p, [Sampling(temperature, top_k)])[0]):
        assert all(math.isfinite(number) for number in signal)
        assert 0 <= signal.ratio <= 1
        warmth = temperature or 1.0
        rows = (widened(logits[0, place], 5, -math.inf) for logits in (p, q))
        of_p, of_q = (torch.softmax((row - row.max()) / warmth, -1) for row in rows)
        if bool((of_q > 0).all()):
            wanted = torch.nn.functional.kl_div(of_q.log(), of_p, reduction="sum")
            assert signal.kld == pytest.approx(max(float(wanted), 0.0), rel=1e-6, abs=1e-9)
        elif bool(((of_p > 1e-9) & (of_q == 0)).any()):
            assert signal.kld > 0
        assert signal.entropy == pytest.approx(float(torch.special.entr(of_q).sum()), abs=1e-9)
    assert entropies(q).isfinite().all()


@given(
    st.lists(st.floats(-1e3, 1e3) | st.just(-math.inf), min_size=5, max_size=5).filter(finite_somewhere),
    st.floats(0, 1e6, allow_subnormal=True),
    st.integers(0, 9),
    st.floats(1e-9, 1),
)
def test_every_sampling_gives_a_distribution(logits: list[float], temperature: float, top_k: int, top_p: float) -> None:
    p = distributions(torch.tensor([[logits]]), [Sampling(temperature, top_k, top_p)])[0, 0]
    assert p.isfinite().all()
    assert float(p.sum()) == pytest.approx(1.0)
    kept = [logit for logit, share in zip(logits, p.tolist(), strict=True) if share > 0]
    dropped = [logit for logit, share in zip(logits, p.tolist(), strict=True) if share == 0]
    assert min(kept) >= max(dropped, default=-math.inf) - 1e-6  # equal but for rounding: either may go
    assert int((p > 0).sum()) <= (top_k or 5)
