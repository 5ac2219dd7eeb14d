"""Exact numbers: what is read is what was written, and times round once, half up."""

import json
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from nest_opt.cost.units import PS_PER_S, to_bytes, to_ps
from nest_opt.problem.base import json_number
from nest_opt.problem.cluster import LevelSpec
from nest_opt.problem.validation import parse_json

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

decimals = st.decimals(
    min_value=0, max_value=10**6, allow_nan=False, allow_infinity=False, places=15
)


@given(decimals)
def test_a_decimal_survives_the_file(number: Decimal) -> None:
    """A latency written to JSON and read back is the same number, to its last digit."""
    text = json.dumps({"latency_s": json_number(number)})
    data = parse_json(text, "test")
    level = LevelSpec(name="l", size=1, bandwidth_bytes_per_s=1, latency_s=data["latency_s"])
    assert level.latency_s == number


@given(st.floats(min_value=0, max_value=1e6, allow_nan=False))
def test_a_float_stands_for_its_shortest_decimal(number: float) -> None:
    """Python's 0.1 means one tenth."""
    if number and number < 1e-40:
        return
    level = LevelSpec(name="l", size=1, bandwidth_bytes_per_s=1, latency_s=number)
    assert level.latency_s == Decimal(repr(number))


@given(st.fractions(min_value=0, max_value=10**6))
def test_picoseconds_are_the_nearest_half_up(seconds: Fraction) -> None:
    """The rounded time is within half a picosecond, and exactly half goes up."""
    error = to_ps(seconds) - seconds * PS_PER_S
    assert -Fraction(1, 2) < error <= Fraction(1, 2)


@given(st.fractions(min_value=0, max_value=10**15))
def test_bytes_round_up(size: Fraction) -> None:
    """The rounded size is the least whole number of bytes that holds it."""
    assert 0 <= to_bytes(size) - size < 1
