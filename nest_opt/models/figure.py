"""A number with where it comes from."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Figure:
    """A number of the hardware catalogue and its source.

    Attributes
    ----------
    value
        The number, exact, in the unit that the name of the field holding it says.
    source
        Public document, measurement or derivation; of a guess, what it rests on.
    guess
        True where no source states the number for this very hardware.
    """

    value: int | Decimal
    source: str
    guess: bool = False


def guessed(value: int | Decimal, basis: str) -> Figure:
    """Return a figure that is labelled as a guess, with what it rests on."""
    return Figure(value, f"guess: {basis}", guess=True)
