"""Exact seconds to integer picoseconds, and back for printing."""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

PS_PER_S = 10**12


def to_ps(seconds: Fraction) -> int:
    """Round exact seconds to picoseconds, half up: the only rounding of a time."""
    numerator, denominator = seconds.as_integer_ratio()
    return (2 * PS_PER_S * numerator + denominator) // (2 * denominator)


def to_ps_each(seconds: Fraction, counts: Iterable[int]) -> tuple[int, ...]:
    """Return `to_ps` of several whole multiples of exact seconds, without a fraction for each."""
    numerator, denominator = seconds.as_integer_ratio()
    return tuple(
        (2 * PS_PER_S * numerator * count + denominator) // (2 * denominator) for count in counts
    )


def to_s(picoseconds: int) -> float:
    """Return the nearest float in seconds, for printing only."""
    return picoseconds / PS_PER_S


def to_bytes(exact: Fraction) -> int:
    """Round bytes up."""
    return ceil(exact)


def to_bytes_each(exact: Fraction, counts: Iterable[int]) -> tuple[int, ...]:
    """Return `to_bytes` of several whole multiples of exact bytes."""
    numerator, denominator = exact.as_integer_ratio()
    return tuple(-(-numerator * count // denominator) for count in counts)
