"""Bandwidths, times and sizes on the command line: a number and its unit, exactly."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

import click

_NUMBER = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?) ?([A-Za-z/]{1,8})")
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

# Gb/s is left out: it is one letter's case from GB/s, and eight times less.
BANDWIDTHS: Mapping[str, Fraction] = {
    **{f"{prefix}B/s": Fraction(size) for prefix, size in _PREFIXES.items()},
    **{f"{prefix}bit/s": Fraction(size, 8) for prefix, size in _PREFIXES.items()},
}
TIMES: Mapping[str, Fraction] = {
    unit: Fraction(1, 10**digits) for unit, digits in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
}
SIZES: Mapping[str, Fraction] = {
    **{f"{prefix}B": Fraction(size) for prefix, size in _PREFIXES.items()},
    **{f"{prefix}iB": Fraction(2**bits) for prefix, bits in (("K", 10), ("M", 20), ("G", 30))},
}


def amount(text: str, units: Mapping[str, Fraction], example: str) -> Fraction:
    """Return a number with a unit in the unit's base, or raise click.BadParameter."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match.group(2) not in units:
        found = text if len(text) <= 40 else f"{text[:40]}..."
        raise click.BadParameter(
            f"found {found!r}, a number with one of the units {', '.join(units)} is needed "
            f"({example}): correct it"
        )
    return Fraction(match.group(1)) * units[match.group(2)]


def bandwidth(text: str) -> Fraction:
    """Return bytes/s, or raise click.BadParameter."""
    return amount(text, BANDWIDTHS, "50GB/s, which is 400Gbit/s")


def duration(text: str) -> Fraction:
    """Return seconds, or raise click.BadParameter."""
    return amount(text, TIMES, "2.5us")


def size(text: str) -> int:
    """Return bytes, rounded up, or raise click.BadParameter."""
    found = amount(text, SIZES, "1MiB")
    return -(-found.numerator // found.denominator)


def parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """Return a callback that parses an option's text, so that errors name the option."""
    return lambda ctx, parameter, text: None if text is None else parse(text)


def keyed(
    texts: Sequence[str], option: str, keys: Collection[str], parse: Callable[[str], Fraction]
) -> dict[str, Fraction]:
    """Return what `KEY=VALUE[,KEY=VALUE]` options say, or raise click.BadParameter."""
    found: dict[str, Fraction] = {}
    for part in (part for text in texts for part in text.split(",")):
        key, sign, value = part.partition("=")
        if not sign or key not in keys:
            raise click.BadParameter(
                f"found {part[:60]!r}, KEY=VALUE is needed with one of the keys "
                f"{', '.join(keys)}: correct it",
                param_hint=option,
            )
        if key in found:
            raise click.BadParameter(
                f"found {key} 2 times, 1 is allowed: remove one", param_hint=option
            )
        try:
            found[key] = parse(value)
        except click.BadParameter as error:
            error.param_hint = f"{option} {key}"
            raise
    return found
