"""Reading untrusted JSON: exact numbers, limits, and errors in a user's words."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nest_opt.errors import InstanceError, NestOptError

MAX_FILE_BYTES = 64 * 2**20
MAX_NUMBER_CHARACTERS = 60
MAX_DEPTH = 64
SHOWN_ERRORS = 3
SHOWN_VALUE_CHARACTERS = 60

Model = TypeVar("Model", bound=BaseModel)


def read_json(path: Path) -> Any:
    """Return the data of a JSON file; numbers with a point or exponent are Decimals.

    Raises
    ------
    InstanceError
        If the file cannot be read, is too large or too deeply nested, is not
        JSON, repeats a key, or holds NaN, an infinity or an endless number.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InstanceError(
                f"{path}: found {size} bytes, at most {MAX_FILE_BYTES} bytes are read: "
                "split or compress the tables"
            )
        return parse_json(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InstanceError(f"{path}: cannot be read ({error.strerror}): check the path") from error
    except UnicodeDecodeError as error:
        raise InstanceError(
            f"{path}: byte {error.start} is not UTF-8 text: save the file as UTF-8"
        ) from error


def parse_json(text: str, name: str) -> Any:
    """Return the data of a JSON text, `name` standing for it in errors."""

    def refuse(what: str, remedy: str) -> InstanceError:
        return InstanceError(f"{name}: {what}: {remedy}")

    def constant(word: str) -> Any:
        raise refuse(f"found {word}, finite numbers only are allowed", "write a number")

    def number(digits: str) -> Any:
        if len(digits) > MAX_NUMBER_CHARACTERS:
            raise refuse(
                f"found a number of {len(digits)} characters ({digits[:20]}...), at most "
                f"{MAX_NUMBER_CHARACTERS} are allowed",
                "shorten it",
            )
        return int(digits) if digits.lstrip("-").isdigit() else Decimal(digits)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                raise refuse(f"found key {key!r} 2 times in one object, 1 is allowed", "remove one")
            seen[key] = value
        return seen

    try:
        data = json.loads(
            text,
            parse_float=number,
            parse_int=number,
            parse_constant=constant,
            object_pairs_hook=unique,
        )
    except json.JSONDecodeError as error:
        raise refuse(
            f"not JSON at line {error.lineno}, column {error.colno} ({error.msg})",
            "correct that place (a truncated file ends there)",
        ) from error
    except RecursionError as error:
        raise refuse(f"nested deeper than {MAX_DEPTH} levels", "flatten it") from error
    if _deeper_than(data, MAX_DEPTH):
        raise refuse(f"nested deeper than {MAX_DEPTH} levels", "flatten it")
    return data


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
) -> Model:
    """Build an entity from JSON data, or raise an error that names what is wrong."""
    if not isinstance(data, Mapping):
        raise error_class(
            f"{name}: found a JSON {_kind(data)}, an object is needed: "
            "see docs/problem_format.md for the fields"
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        lines = [_sentence(item) for item in problems[:SHOWN_ERRORS]]
        if len(problems) > SHOWN_ERRORS:
            lines.append(f"and {len(problems) - SHOWN_ERRORS} more")
        raise error_class(f"{name}: " + "\n  ".join(lines)) from error


def _sentence(item: Mapping[str, Any]) -> str:
    """Turn one pydantic error into item, number found, number allowed, remedy."""
    place = ""
    for part in item["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
    place = place.lstrip(".") or "the object"
    kind, message = item["type"], item["msg"]
    if kind == "missing":
        return f"{place}: found nothing, a value is needed: add the field"
    if kind == "extra_forbidden":
        return f"{place}: unknown field: remove it, or see docs/problem_format.md for its name"
    if kind == "value_error":
        text = message.removeprefix("Value error, ")
        return text if place == "the object" else f"{place}: {text}"
    rule = message[0].lower() + message[1:]
    rule = rule.replace("input should", "should")
    return f"{place}: found {_shown(item.get('input'))}, {rule}: correct the value"


def _kind(data: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(data), "number")


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return f"an object of {len(value)} fields"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)} items"
    text = json.dumps(value, default=str)
    cut = text[:SHOWN_VALUE_CHARACTERS]
    return cut if cut == text else cut + "..."
