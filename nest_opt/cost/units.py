"""Exact seconds to integer picoseconds, and back for printing."""

from fractions import Fraction
from math import ceil

PS_PER_S = 10**12


def to_ps(seconds: Fraction) -> int:
    """Round exact seconds to picoseconds, half up: the only rounding of a time."""
    scaled = 2 * seconds * PS_PER_S + 1
    return scaled.numerator // (2 * scaled.denominator)


def to_s(picoseconds: int) -> float:
    """Return the nearest float in seconds, for printing only."""
    return picoseconds / PS_PER_S


def to_bytes(exact: Fraction) -> int:
    """Round bytes up."""
    return ceil(exact)
