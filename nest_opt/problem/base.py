"""What every entity of the file formats shares: frozen, exact, bounded numbers."""

import re
from collections.abc import Hashable, Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

# Sums over all layers are checked against the int64 range of the search arrays
# where they are formed (nest_opt.cost.build); these limits keep single items sane.
MAX_BYTES = 10**15
MAX_COUNT = 2**40
MAX_DEGREE = 2**20
MAX_SECONDS = Decimal(10) ** 6
MAX_DIGITS = 40

# Tags of a value that has one of several forms: none is a key of a file.
NUMBER, TEXT, OBJECT = "[number]", "[text]", "[object]"

_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)

Item = TypeVar("Item", bound=Hashable)


class Frozen(BaseModel):
    """Base of all entities: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, validated like any other entity.

        Entities are immutable, so `deep` changes nothing. Pydantic's own copy
        would keep values derived from the fields before the change.
        """
        kept = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**kept, **(update or {})})


def exact_decimal(value: Any) -> Any:
    """Turn a JSON number or a decimal string into a Decimal, exactly.

    A Python float stands for its shortest decimal form: 0.1 means one tenth.
    Anything else is left for pydantic to refuse by its type.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return value
    text = str(value)
    if isinstance(value, str) and len(text) <= MAX_DIGITS and not _DECIMAL.fullmatch(text):
        raise ValueError(f"found {text!r}, a decimal number is needed: correct the value")
    if len(text) > MAX_DIGITS:
        raise ValueError(
            f"found a number of {len(text)} characters ({text[:20]}...), at most {MAX_DIGITS} are "
            "allowed: shorten it"
        )
    try:
        number = Decimal(text)
    except ArithmeticError as error:
        raise ValueError(
            f"found {text!r}, a number of magnitude 1e-40 to 1e40, or 0, is needed: "
            "correct the value"
        ) from error
    # A huge exponent is short to write and endless to compute with.
    if not number.is_finite() or (number and abs(number.adjusted()) > MAX_DIGITS):
        raise ValueError(
            f"found {text}, a finite number of magnitude 1e-40 to 1e40, or 0, is needed: "
            "correct the value"
        )
    return number


def json_number(number: Decimal) -> int | float | str:
    """Write a Decimal as the JSON number that reads back to it, else as a string."""
    if number == number.to_integral_value():
        return int(number)
    as_float = float(number)
    return as_float if Decimal(repr(as_float)) == number else str(number)


Exact = Annotated[
    Decimal,
    BeforeValidator(exact_decimal),
    PlainSerializer(json_number),
    WithJsonSchema({"type": ["number", "string"]}),
]

Seconds = Annotated[Exact, Field(ge=0, le=MAX_SECONDS)]
Bytes = Annotated[int, Field(strict=True, ge=0, le=MAX_BYTES)]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
Degree = Annotated[int, Field(strict=True, ge=1, le=MAX_DEGREE)]
Flag = Annotated[bool, Field(strict=True)]
Identifier = Annotated[str, Field(min_length=1, max_length=200)]


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names for a message: sorted, quoted, the first few of them."""
    every = sorted(names)
    return ", ".join(map(repr, every[:most])) + (", ..." if len(every) > most else "")


def first_repeated(items: Iterable[Item]) -> Item | None:
    """Return the first item that occurs a second time, or None."""
    seen: set[Item] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None
