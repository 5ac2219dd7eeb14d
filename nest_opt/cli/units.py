"""Numbers as a person reads them: four significant digits and always a unit.

Whole multiples of a unit are written without decimals: `80 GB` is exactly
80e9 bytes, `80.00 GB` is close to it.
"""

from math import floor, log10

DIGITS = 4
HEADLINE_DIGITS = 6

_TIME_UNITS = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))
_BYTE_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))


def number_text(number: float, digits: int = DIGITS) -> str:
    """Return a number with so many significant digits, at least down to the unit.

    There is an exponent only below 1e-4.
    """
    rounded = float(f"{number:.{digits - 1}e}")
    if abs(rounded) < 1e-3:
        return f"{rounded:.{digits}g}"
    decimals = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{decimals}f}" if decimals > 0 else f"{number:,.0f}"


def _scaled(amount: int, units: tuple[tuple[str, int], ...]) -> str:
    if amount == 0:
        return f"0 {units[0][0] if units is _TIME_UNITS else 'B'}"
    for unit, size in units:
        if float(f"{amount / size:.{DIGITS - 1}e}") >= 1:
            whole, rest = divmod(amount, size)
            return f"{number_text(amount / size)} {unit}" if rest else f"{whole:,} {unit}"
    return f"{amount:,} {units[-1][0]}"


def time_text(picoseconds: int) -> str:
    """Return a time in the unit that suits it: s, ms, us, ns or ps."""
    return _scaled(picoseconds, _TIME_UNITS)


def seconds_text(picoseconds: int) -> str:
    """Return a time in seconds, whatever its size."""
    whole, rest = divmod(picoseconds, 10**12)
    return f"{number_text(picoseconds / 10**12, HEADLINE_DIGITS)} s" if rest else f"{whole:,} s"


def exact_seconds_text(picoseconds: int) -> str:
    """Return a time in seconds with all twelve decimals, so that sums can be checked."""
    whole, rest = divmod(picoseconds, 10**12)
    return f"{whole:,}.{rest:012d} s"


def bytes_text(size: int) -> str:
    """Return a size in the decimal unit that suits it: B, kB, MB, GB or TB."""
    return _scaled(size, _BYTE_UNITS)


def exact_bytes_text(size: int) -> str:
    """Return a size in its unit and, where that rounds or hides digits, in bytes."""
    text = bytes_text(size)
    return text if text.endswith(" B") else f"{text} ({size:,} bytes)"


def percent_text(part: int, whole: int) -> str:
    """Return a share in percent, with one decimal."""
    return f"{100 * part / whole:.1f}%"


def gap_text(gap: float) -> str:
    """Return a relative gap in percent; `0%` is exactly zero."""
    return "0%" if gap == 0 else f"{number_text(100 * gap, 3)}%"


def change_text(share: float | None) -> str:
    """Return by which share a number exceeds another, in percent with its sign; empty if None."""
    if share is None:
        return ""
    return "0%" if share == 0 else f"{'+' if share > 0 else '-'}{number_text(abs(100 * share), 3)}%"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
