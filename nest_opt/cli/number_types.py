"""Numbers on the command line, refused in the words of this package.

Ranges are checked where the numbers are used, so that Python and the command
line give the same messages.
"""

from fractions import Fraction

import click

_MAX_CHARACTERS = 20


def whole(text: str) -> int:
    """Return a whole number, or raise click.BadParameter."""
    digits = text.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(text) > _MAX_CHARACTERS:
        raise _refused(text, f"a whole number of at most {_MAX_CHARACTERS} characters is needed")
    return int(text)


def whole_list(text: str) -> tuple[int, ...]:
    """Return whole numbers that have commas between them, or raise click.BadParameter."""
    return tuple(whole(part) for part in text.split(","))


def factor(text: str) -> Fraction:
    """Return a decimal number exactly, or raise click.BadParameter."""
    plain = text.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit()) or len(text) > _MAX_CHARACTERS:
        raise _refused(text, "a number such as 1.25 is needed")
    return Fraction(text)


def _refused(text: str, needed: str) -> click.BadParameter:
    found = text if len(text) <= 2 * _MAX_CHARACTERS else f"{text[: 2 * _MAX_CHARACTERS]}..."
    return click.BadParameter(f"found {found!r}, {needed}: correct it")
