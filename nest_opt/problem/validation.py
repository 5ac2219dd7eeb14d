"""Reading untrusted JSON: exact numbers, limits, and errors in a user's words."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nest_opt.errors import InstanceError, NestOptError
from nest_opt.problem.base import NUMBER, OBJECT, TEXT, first_repeated

MAX_FILE_BYTES = 16 * 2**20
MAX_NUMBER_CHARACTERS = 60
MAX_DEPTH = 64
SHOWN_ERRORS = 3
SHOWN_VALUE_CHARACTERS = 60
SHOWN_KEYS = 6

Model = TypeVar("Model", bound=BaseModel)

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_DECIMAL = re.compile(r"Decimal\('([^']*)'\)")
_STARTS_WITH_FIELD = re.compile(r"[a-z_.]+: ")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,59}")


def read_json(path: Path) -> Any:
    """Return the data of a JSON file; numbers with a point or exponent are Decimals.

    Raises
    ------
    InstanceError
        If the file cannot be read, is too large or too deeply nested, is not
        JSON, repeats a key, or holds NaN, an infinity or an endless number.
    """
    return parse_json(read_text(path, "let equal layers share a type, and use repeat"), str(path))


def read_text(path: Path, shorten: str, encoding: str = "utf-8") -> str:
    """Return the text of a file that is not trusted; `shorten` is what to do if it is too large.

    Raises
    ------
    InstanceError
        If it cannot be read, is too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InstanceError(f"{path}: cannot be read ({error.strerror}): check the path") from error
    if len(content) > MAX_FILE_BYTES:
        raise InstanceError(
            f"{path}: found more than {MAX_FILE_BYTES} bytes, at most {MAX_FILE_BYTES} are read: "
            f"{shorten}"
        )
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InstanceError(
            f"{path}: byte {error.start} is not UTF-8 text: save the file as UTF-8"
        ) from error


def parse_json(text: str, name: str) -> Any:
    """Return the data of a JSON text, `name` standing for it in errors."""
    if text.startswith("\ufeff"):
        raise InstanceError(
            f"{name}: starts with a byte order mark: save the file as UTF-8 without one"
        )
    if not text.strip():
        raise InstanceError(f"{name}: the file is empty, a JSON object is needed: check the path")
    hooks = _Hooks(text, name)
    try:
        data = json.loads(
            text,
            parse_float=hooks.number,
            parse_int=hooks.number,
            parse_constant=hooks.constant,
            object_pairs_hook=hooks.unique,
        )
    except json.JSONDecodeError as error:
        raise InstanceError(
            f"{name}: not JSON at line {error.lineno}, column {error.colno} ({error.msg}): "
            "correct that place (a truncated file ends there)"
        ) from error
    except RecursionError as error:
        raise _too_deep(name) from error
    if _deeper_than(data, MAX_DEPTH):
        raise _too_deep(name)
    return data


def _too_deep(name: str) -> InstanceError:
    return InstanceError(f"{name}: nested deeper than {MAX_DEPTH} levels: flatten it")


@dataclass(frozen=True)
class _Hooks:
    """What the JSON decoder calls for numbers and objects of a text."""

    text: str
    name: str

    def constant(self, word: str) -> Any:
        """Refuse NaN and the infinities."""
        raise self._refusal(word, word, "a finite number is needed", "write a number")

    def number(self, digits: str) -> int | Decimal:
        """Return a number exactly; refuse those that are endless to read or to compute with."""
        if len(digits) > MAX_NUMBER_CHARACTERS:
            what = f"a number of {len(digits)} characters ({digits[:20]}...)"
            allowed = f"at most {MAX_NUMBER_CHARACTERS} are allowed"
            raise self._refusal(digits, what, allowed, "shorten it")
        try:
            return int(digits) if digits.lstrip("-").isdigit() else Decimal(digits)
        except ArithmeticError as error:
            allowed = "a magnitude of 1e-40 to 1e40, or 0, is needed"
            raise self._refusal(digits, digits, allowed, "correct the value") from error

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return an object's pairs; refuse a key that it has twice."""
        repeated = first_repeated(key for key, _ in pairs)
        if repeated is None:
            return dict(pairs)
        others = ", ".join(_shown(key) for key in list(dict(pairs))[:SHOWN_KEYS])
        raise InstanceError(
            f"{self.name}: found key {_shown(repeated)} 2 times in one object (of keys {others}), "
            "1 is allowed: remove one"
        )

    def _refusal(self, token: str, what: str, allowed: str, remedy: str) -> InstanceError:
        line = _line_of(self.text, token)
        return InstanceError(f"{self.name}: found {what} in line {line}, {allowed}: {remedy}")


def _line_of(text: str, token: str) -> int:
    """Return the line of a token's first occurrence outside strings."""
    for match in re.finditer(f"{_STRING}|({re.escape(token)})", text):
        if match.group(1):
            return text.count("\n", 0, match.start()) + 1
    return 1


def _deeper_than(data: Any, depth: int) -> bool:
    layer = [data]
    for _ in range(depth):
        layer = [
            child
            for item in layer
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not layer:
            return False
    return True


def build(
    model: type[Model],
    data: Any,
    name: str,
    error_class: type[NestOptError] = InstanceError,
    page: str = "docs/problem_format.md",
) -> Model:
    """Build an entity from JSON data, or raise an error that names what is wrong.

    `page` is where its fields are described.
    """
    if not isinstance(data, Mapping):
        raise error_class(
            f"{name}: found a JSON {_kind(data)}, an object is needed: see {page} for the fields"
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = [item for item in error.errors(include_url=False) if not _is_echo(item)]
        names = _field_names(model)
        lines = [_sentence(item, data, names, page) for item in problems[:SHOWN_ERRORS]]
        if len(problems) > SHOWN_ERRORS:
            lines.append(f"and {len(problems) - SHOWN_ERRORS} more")
        raise error_class(f"{name}: " + "\n  ".join(lines)) from error


def _field_names(model: type[BaseModel]) -> list[str]:
    """Return the names of the fields of an entity and of all inside it."""
    schema = model.model_json_schema()
    entities = [schema, *schema.get("$defs", {}).values()]
    return sorted({name for entity in entities for name in entity.get("properties", {})})


def _is_echo(item: Mapping[str, Any]) -> bool:
    """Whether an array is called short only because items of it were refused."""
    return bool(
        item["type"] == "too_short"
        and isinstance(item["input"], list | tuple)
        and len(item["input"]) >= item["ctx"]["min_length"]
    )


def _sentence(item: Mapping[str, Any], data: Any, names: Sequence[str], page: str) -> str:
    """Turn one pydantic error into item, number found, number allowed, remedy.

    `names` are those of all fields, for a guess at what a misspelt one means;
    `page` is where they are described.
    """
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    place = _place(item["loc"], data)
    if kind == "missing":
        return f"{place}: found nothing, a value is needed: add the field"
    if kind == "extra_forbidden":
        name = str(item["loc"][-1])
        # A name that is right elsewhere says nothing about what is meant here.
        close = [] if name in names else get_close_matches(name, names, n=1)
        guess = f"call it {close[0]}" if close else f"see {page} for its name"
        return f"{place}: unknown field: remove it, or {guess}"
    if kind == "value_error":
        text: str = item["msg"].removeprefix("Value error, ")
        if place == "the object":
            return text
        return f"{place}.{text}" if _STARTS_WITH_FIELD.match(text) else f"{place}: {text}"
    if kind == "union_tag_invalid":
        place, value = f"{place}.{context['discriminator'].strip(chr(39))}", context["tag"]
    if kind == "union_tag_not_found" and isinstance(value, Mapping):
        tag = context["discriminator"].strip("'")
        return f"{place}.{tag}: found nothing, a value is needed: add the field"
    found = _shown(value)
    if kind == "string_too_long":
        found = f"text of {len(value or '')} characters"
    return f"{place}: found {found}, {_wanted(item)}: correct the value"


_WANTED = {
    "bool_type": "true or false is needed",
    "decimal_type": "a number is needed",
    "dict_type": "an object is needed",
    "greater_than": "more than {gt} is needed",
    "greater_than_equal": "at least {ge} is needed",
    "int_type": "a whole number is needed",
    "less_than_equal": "at most {le} is allowed",
    "literal_error": "{expected} is needed",
    "model_attributes_type": "an object is needed",
    "model_type": "an object is needed",
    "string_pattern_mismatch": "text of another form is needed",
    "string_too_long": "at most {max_length} are allowed",
    "string_too_short": "a minimum of {min_length} is needed",
    "string_type": "text in quotes is needed",
    "string_unicode": "whole Unicode characters are needed",
    "too_long": "at most {max_length} are allowed",
    "too_short": "a minimum of {min_length} is needed",
    "tuple_type": "an array is needed",
    "union_tag_invalid": "one of {expected_tags} is needed",
    "union_tag_not_found": "an object is needed",
}


_FORMS = {
    r"^[1-9][0-9]{0,11}$": "a whole number in quotes, without leading zeros, is needed",
    r"^[0-9]{1,40}$": "a whole number in quotes, of at most 40 digits, is needed",
}


def _wanted(item: Mapping[str, Any]) -> str:
    """Return what a field needs or allows, in the words of this package where it has some."""
    form = _FORMS.get(item.get("ctx", {}).get("pattern", ""))
    if form:
        return form
    if item["type"] in _WANTED:
        # Pydantic writes a limit that is a Decimal as Python code.
        return _DECIMAL.sub(r"\1", _WANTED[item["type"]].format(**item.get("ctx", {})))
    message: str = item["msg"]
    return message[0].lower() + message[1:]


# Parts of a location that no file has: a key itself, and which of several forms a value has.
_NO_PLACES = {"[key]", NUMBER, TEXT, OBJECT}


def _place(location: tuple[str | int, ...], data: Any) -> str:
    """Return where in the data an error is; a bad key is itself the place.

    A location also names the chosen kind of a tagged object, which the file
    does not nest: parts that the data does not have are left out, but for the
    last, which may be missing from it.
    """
    place, is_new = "", False
    parts = [part for part in location if part not in _NO_PLACES]
    for number, part in enumerate(parts):
        if isinstance(part, int):
            place += f"[{part}]"
            data = data[part] if isinstance(data, list | tuple) and part < len(data) else None
            is_new = True
        elif is_new and _is_tag(part, data):
            # A field may be called as the kind is.
            is_new = False
        elif isinstance(data, Mapping) and part in data:
            place, data, is_new = place + _key(part), data[part], True
        elif number == len(parts) - 1 and not _is_tag(part, data):
            place += _key(part)
    return place.lstrip(".") or "the object"


def _is_tag(part: str, data: Any) -> bool:
    """Whether a part of a location is the kind that a tagged object says it is."""
    return isinstance(data, Mapping) and data.get("type") == part


def _key(name: str) -> str:
    return f".{name}" if _PLAIN_KEY.fullmatch(name) else f"[{_shown(name)}]"


def _kind(data: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(data), "number")


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return f"an object of {len(value)} field{'' if len(value) == 1 else 's'}"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)} item{'' if len(value) == 1 else 's'}"
    text = json.dumps(value, default=str)
    cut = text[:SHOWN_VALUE_CHARACTERS]
    return cut if cut == text else cut + "..."
