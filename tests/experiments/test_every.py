"""All reproductions at once: every judged row counts once, by paper, against its reference."""

import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS
from specfleet.experiments.reproduce import every as of_all
from specfleet.experiments.reproduce.every import FIRST, NEEDS_TRACE, PAPERS, names, reproduce
from specfleet.experiments.reproduce.rows import (
    FAR,
    JUDGED,
    Kind,
    PaperRow,
    Reproduction,
    claim,
    kinds_of,
    row,
    score_of,
)
from specfleet.fleet.errors import InputError


def of_rows(name: str, errors: list[float], kind: Kind = "predicted") -> Reproduction:
    return Reproduction(name, [row("x", {}, kind, 1.0, 1 + error) for error in errors], [])


def test_the_rows_of_all_papers_are_summed_up_by_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "starsd-table1": of_rows("starsd-table1", [0.02, 0.3]),
        "starsd-fig4": of_rows("starsd-fig4", [0.5], "identity"),
        "batch-fig5c": of_rows("batch-fig5c", [0.0, 0.05, 0.06]),
    }
    monkeypatch.setattr(of_all, "REPRODUCTIONS", {name: lambda name=name: made[name] for name in made})
    whole = reproduce("all")
    assert {paper: (score.rows, score.beyond) for paper, score in whole.parts.items()} == {
        "StarSD": (2, 1),
        "Batch Speculative Decoding": (3, 0),
        FIRST: (5, 1),
    }
    assert (whole.score.rows, whole.score.beyond, whole.score.median_error) == (5, 1, pytest.approx(0.05))
    assert {row.case["of"] for row in whole.rows} == made.keys()
    assert kinds_of([*whole.rows, claim("y", {}, True)]) == {"predicted": 5, "identity": 1}


def test_reproductions_without_their_inputs_are_left_out() -> None:
    assert set(names("runs.json")) - set(names()) == {NEEDS_TRACE}
    assert {name.partition("-")[0] for name in REPRODUCTIONS} == PAPERS.keys()
    with pytest.raises(InputError, match=r"give the authors' run file, --trace FILE"):
        reproduce(NEEDS_TRACE)


@pytest.mark.parametrize(
    ("paper", "ours", "error", "part_of"),
    [(0.5, 0.6, 0.2, None), (0.05, 0.06, 0.2, None), (0.0499, 0.0599, 0.01, 1.0), (0.0, 0.1, None, None)],
)
def test_a_tiny_part_is_held_against_its_whole_and_nothing_against_zero(
    paper: float, ours: float, error: float | None, part_of: float | None
) -> None:
    made = row("wait_s", {}, "predicted", paper, ours, part_of=1.0)
    assert made.error == (None if error is None else pytest.approx(error))
    assert made.part_of == part_of


def test_a_score_over_predictions_and_estimates_says_both() -> None:
    both = [row("x", {}, "predicted", 1.0, 1.0), row("x", {}, "estimated", 1.0, 1.0)]
    assert [score_of(rows).kind for rows in (both[:1], both[1:], both)] == [
        "predicted", "estimated", "predicted and estimated",
    ]  # fmt: skip


def test_what_the_paper_excludes_does_not_count() -> None:
    rows: list[PaperRow] = [
        row("x", {}, "unsettled", 1.0, 2.0, note="its table 2 says 2"),
        claim("y", {}, False, "its table 3 says no"),
        row("z", {}, "predicted", 1.0, 1.0 + FAR),
    ]
    score = score_of(rows)
    assert (score.rows, score.claims, score.median_error) == (1, 0, pytest.approx(FAR))
    assert all(made.note for made in rows if made.kind not in JUDGED)
