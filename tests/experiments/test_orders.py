"""Orders of two methods in a paper, and in ours."""

from specfleet.experiments.reproduce.rows import Kind, PaperRow, claim, reversed_orders, row


def of(method: str, paper: float | None, ours: float, kind: Kind = "predicted", B: int = 4) -> PaperRow:
    return row("latency, s", {"method": method, "B": B}, kind, paper, ours)


def test_a_pair_in_another_order_is_said_with_all_four_numbers() -> None:
    rows = [of("a", 1.0, 1.1), of("b", 2.0, 0.9), of("c", 3.0, 3.0), of("a", 5.0, 5.0, B=8), of("b", 4.0, 4.0, B=8)]
    count, reversed_ones = reversed_orders(rows)
    assert count == 4
    assert reversed_ones == ["latency, s, B=4: a 1 below b 2 in the paper, 1.1 and 0.9 here"]


def test_only_predictions_have_an_order() -> None:
    rows = [of("a", 1.0, 2.0, "fitted"), of("b", 2.0, 1.0, "fitted"), of("c", None, 1.0), of("d", 1.0, 1.0, "input")]
    assert reversed_orders(rows) == (0, [])
    assert reversed_orders([of("a", 1.0, 1.0), of("b", 1.0, 2.0)]) == (0, [])
    assert reversed_orders([claim("a is above b", {"method": "a"}, True)]) == (0, [])


def test_a_quotient_has_an_order_with_one() -> None:
    rows = [row("latency, a over b", {"B": B}, "predicted", 3.3, ours) for B, ours in ((4, 0.96), (8, 1.2))]
    assert reversed_orders(rows) == (2, ["latency, a over b, B=4: 3.3 in the paper, 0.96 here"])
