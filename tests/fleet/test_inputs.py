"""Reading user input: units by the suffix of a key, lists without brackets, texts, tables, their errors."""

import math
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.parquet import read_table
from specfleet.fleet.inputs.quantities import DATA_RATES, RATES, SHARES, TIMES, quantity
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import read_json, read_text, read_toml
from specfleet.fleet.policies.order import rate_limits
from specfleet.fleet.scenario.changes import parse_value, parts_of
from specfleet.fleet.scenario.reading import make_scenario, read_scenario
from specfleet.fleet.scenario.scenario import Scenario


class Quantities(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key of each dimension."""

    wait_s: float = 0.0
    per_token_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    limits_per_s: tuple[float, ...] = ()
    per_s: float = 0.0
    idle_w: float = 0.0
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    rates: tuple[Annotated[float, Meta(ge=0, le=1)], ...] = ()
    slowdowns: dict[str, float] = {}
    count: int = 0
    new_tokens: int = 0
    name: str = ""


MEANT: dict[str, tuple[Any, Any]] = {
    "wait_s": ("10ms", 0.01),
    "per_token_s": ("3 us", 3e-6),
    "bandwidth_bytes_per_s": ("1Gbit", 1.25e8),
    "limits_per_s": (["30/min", 2.0, "1.5/s"], (0.5, 2.0, 1.5)),
    "per_s": ("5Hz", 5.0),
    "idle_w": ("50W", 50.0),
    "share": ("70%", 0.7),
    "rates": (["90%", 0.5], (0.9, 0.5)),
    "new_tokens": ("3k", 3000),
    "name": ("10ms", "10ms"),
}


@pytest.mark.parametrize("key", MEANT)
def test_quantities_are_read_in_the_keys_unit(key: str) -> None:
    written, meant = MEANT[key]
    assert getattr(convert({key: written}, Quantities, "a.toml"), key) == meant


@given(
    st.decimals(0, 10**6, places=3),
    st.sampled_from(["wait_s", "limits_per_s", "bandwidth_bytes_per_s", "x"]),
    st.data(),
)
def test_every_unit_of_a_dimension_means_the_same_quantity(number: Any, key: str, data: st.DataObject) -> None:
    units = {"wait_s": TIMES, "limits_per_s": RATES, "bandwidth_bytes_per_s": DATA_RATES, "x": SHARES}[key]
    unit = data.draw(st.sampled_from(sorted(units)))
    value = quantity(f"{number}{unit}", key, key == "x")
    assert value == pytest.approx(float(number) * float(units[unit]), rel=1e-12)
    assert value == quantity(f" {number} {unit} ", key, key == "x")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("wait_s", "10GB", "seconds, or ns, us, ms, s, min, h"),
        ("wait_s", "70%", "seconds, or"),
        ("share", "10ms", "a number from 0 to 1, or %"),
        ("share", "170%", "<= 1"),
        ("bandwidth_bytes_per_s", "10ms", "Gbit/s"),
        ("limits_per_s", ["3ms"], "limits_per_s.0 = '3ms'"),
        ("slowdowns", {"draft": "10%"}, "a plain number"),
        ("count", "3k", "a plain number"),
        ("wait_s", "ten", "expected `float`"),
    ],
)
def test_wrong_units_are_refused_with_the_allowed_ones(key: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        convert({key: value}, Quantities, "a.toml")
    assert str(refusal.value).startswith(f"a.toml: {key}")
    assert said in str(refusal.value)


def test_units_hold_in_files_and_in_changes(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[link]\nlatency_s = "2 ms"\n')
    read = read_scenario(tmp_path / "a.toml", ["link.bandwidth_bytes_per_s=1Gbit", "measure.warm_up_share=5%"])
    assert read.link is not None
    assert (read.link.latency_s, read.link.bandwidth_bytes_per_s) == (0.002, 1.25e8)
    assert read.measure.warm_up_share == 0.05


@pytest.mark.parametrize("text", ["0.5,1", "[0.5, 1]", " 30/min , 1/s", "[30/min,1/s]"])
def test_lists_may_stand_without_brackets_behind_a_key(text: str) -> None:
    made = read_scenario_with("drafters.order=fifo", f"drafters.order.limits_per_s={text}")
    assert rate_limits(made.drafters.order) == (0.5, 1.0)
    one = read_scenario_with("drafters.order=fifo", "drafters.order.limits_per_s=3")
    assert rate_limits(one.drafters.order) == (3.0,)
    farther = "verifiers.tiers={first = 2, link.latency_s = 1},{first = 3, link.latency_s = 2}"
    assert read_scenario_with(farther, "verifiers.count=3").verifiers.tiers[1].first == 3
    assert read_scenario_with("name=a,b").name == "a,b"


def read_scenario_with(*changes: str) -> Scenario:
    from specfleet.fleet.scenario.reading import change_scenario

    return change_scenario(Scenario(), changes)


plain = st.recursive(
    st.integers(-99, 99) | st.sampled_from(["a", "b,c", "[d", "e}"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=9,
)


@given(st.lists(plain, min_size=1, max_size=5))
def test_commas_within_brackets_and_quotes_part_nothing(values: list[Any]) -> None:
    texts = [msgspec.json.encode(value).decode() for value in values]
    assert parts_of(" , ".join(texts)) == texts
    assert [parse_value(text) for text in texts] == values


def test_a_value_of_several_lines_sets_nothing_else() -> None:
    assert parse_value("1\nb = 2") == "1\nb = 2"


def test_a_bare_name_within_a_list_stands_for_its_table() -> None:
    verifiers = {"count": 2, "tiers": [{"first": 2, "step": {"base_s": 1.0, "spread": "exponential"}}]}
    made = make_scenario({"verifiers": verifiers})
    times = made.verifiers.tiers[0].step
    assert times is not None
    assert type(times.spread).__name__ == "Exponential"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e30, 10**30])
def test_numbers_beyond_all_bounds_are_refused_by_their_key(number: float) -> None:
    with pytest.raises(InputError, match=r"a\.toml: wait_s = .*1e\+19"):
        convert({"wait_s": number}, Quantities, "a.toml")


BROKEN: dict[str, tuple[bytes, str]] = {
    "gzip": (b"\x1f\x8b\x08", "compressed by gzip; unpack it first"),
    "not UTF-8": (b"a = '\xff'", "not UTF-8 text (byte 0xff at 5)"),
    "deeply nested": (b"a = " + b"[" * 100_000, "nested too deeply"),
    "too many digits": (b"a = " + b"9" * 10_000, "not TOML"),
    "a NUL": (b"a = '\x00'", "not TOML"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_text_is_one_line_that_names_the_file(case: str, tmp_path: Path) -> None:
    content, said = BROKEN[case]
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.toml: ") as refusal:
        read_toml(tmp_path / "a.toml")
    assert said in str(refusal.value)


def test_byte_order_marks_and_crlf_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert read_toml(tmp_path / "a.toml") == {"a": 1, "b": 2}


@pytest.mark.parametrize("name", ["", "none", "a\0b", "x" * 5000])
def test_what_is_no_file_is_one_line(name: str, tmp_path: Path) -> None:
    for read in (read_text, read_json, lambda path: read_table(path, pa.schema([]))):
        with pytest.raises(InputError) as refusal:
            read(tmp_path / name)
        assert len(str(refusal.value)) < 1000


KINDS = pa.schema(
    [
        ("whole", pa.int64()), ("number", pa.float64()), ("text", pa.string()), ("flag", pa.bool_()),
        ("numbers", pa.list_(pa.float64())),
    ]
)  # fmt: skip
GOOD = {
    "whole": [1, 2], "number": [0.5, 1.0], "text": ["a", "b"], "flag": [True, False], "numbers": [[0.5, 1.0], []],
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a text for a number": ({"number": ["0.5", "1"]}, "column 'number' holds string"),
    "a fraction for a whole number": ({"whole": [1.5, 2.0]}, "column 'whole' holds double"),
    "a number for a flag": ({"flag": [0, 1]}, "column 'flag' holds int64"),
    "NaN": ({"number": [math.nan, 1.0]}, "column 'number' holds NaN or infinity"),
    "infinity": ({"number": [math.inf, 1.0]}, "column 'number' holds NaN or infinity"),
    "a hole": ({"text": ["a", None]}, "column 'text' lacks 1 of its 2 values"),
    "NaN in a list": ({"numbers": [[0.5, math.nan], []]}, "column 'numbers' holds NaN or infinity"),
    "a hole in a list": ({"numbers": [[0.5, None], []]}, "column 'numbers' lacks 1 of its 2 values"),
    "a list of texts": ({"numbers": [["a"], []]}, "column 'numbers' holds list"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_column_of_another_kind_is_named(case: str, tmp_path: Path) -> None:
    changed, said = REFUSED[case]
    pq.write_table(pa.table(GOOD | changed), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: ") as refusal:
        read_table(tmp_path / "a.parquet", KINDS)
    assert said in str(refusal.value)


def test_other_widths_orders_and_columns_will_do(tmp_path: Path) -> None:
    table = pa.table({"extra": [1, 2], "flag": [True, False], **GOOD})
    table = table.set_column(2, "whole", table["whole"].cast(pa.int8())).set_column(3, "number", table["whole"])
    pq.write_table(table, tmp_path / "a.parquet")
    read = read_table(tmp_path / "a.parquet", KINDS)
    assert read.schema.equals(KINDS)
    assert read["number"].to_pylist() == [1.0, 2.0]
